// Command gen writes the assembly of package cpu, one file a stem:
//
//	go run ./gen -kernels product -out product_amd64.s -stubs product_amd64.go -pkg cpu
//
// go generate, in the package's directory, writes all of them.
package main

import (
	"flag"
	"log"

	"github.com/mmcloughlin/avo/build"
)

var stems = map[string]func(){
	"attention": attentionKernels,
	"bf16":      bf16Kernels,
	"dot":       dotKernels,
	"gdn":       gdnKernels,
	"peak":      peakKernels,
	"product":   productKernels,
	"quantize":  quantizeKernels,
	"tiles":     tileKernels,
	"unpack":    unpackKernels,
	"vector":    vectorKernels,
}

func main() {
	stem := flag.String("kernels", "", "the stem to write")
	flag.Parse()
	kernels, ok := stems[*stem]
	if !ok {
		log.Fatalf("no kernels %q", *stem)
	}
	build.ConstraintExpr("amd64")
	kernels()
	build.Generate()
}
