// Command neon writes the arm64 assembly of package cpu, one file a stem:
//
//	go run ./gen/neon -kernels product -out product_arm64.s -stubs product_stubs_arm64.go
//
// go generate, in the package's directory on arm64, writes all of them.
package main

import (
	"flag"
	"log"
	"os"
)

var stems = map[string]func(*file){
	"attention": attentionKernels,
	"dot":       dotKernels,
	"fused":     fusedKernels,
	"gdn":       gdnKernels,
	"peak":      peakKernels,
	"product":   productKernels,
	"quantize":  quantizeKernels,
	"unpack":    unpackKernels,
	"vector":    vectorKernels,
}

// written returns the assembly of a stem and the declarations of its functions.
func written(stem string) (assembly, stubs []byte) {
	f := newFile(stem)
	stems[stem](f)
	return f.assembly.Bytes(), f.stubs.Bytes()
}

func main() {
	stem := flag.String("kernels", "", "the stem to write")
	out := flag.String("out", "", "the assembly to write")
	declared := flag.String("stubs", "", "the declarations to write")
	flag.Parse()
	if stems[*stem] == nil {
		log.Fatalf("no kernels %q", *stem)
	}
	assembly, stubs := written(*stem)
	if err := os.WriteFile(*out, assembly, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*declared, stubs, 0o644); err != nil {
		log.Fatal(err)
	}
}
