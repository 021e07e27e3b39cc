package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRegisters finds registers that belong to the system, Go's assembler or its runtime.
func TestRegisters(t *testing.T) {
	theirs := regexp.MustCompile(`\bR(18|2[6-9]|3[01])\b`)
	for stem := range stems {
		assembly, _ := written(stem)
		for line := range strings.Lines(string(assembly)) {
			if theirs.MatchString(line) {
				t.Errorf("%s: %s", stem, strings.TrimSpace(line))
			}
		}
	}
}

// TestGenerated holds the assembly and declarations of package cpu to what the command writes.
func TestGenerated(t *testing.T) {
	for stem := range stems {
		assembly, stubs := written(stem)
		for name, want := range map[string][]byte{stem + "_arm64.s": assembly, stem + "_stubs_arm64.go": stubs} {
			got, err := os.ReadFile(filepath.Join("../..", name))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("%s is not what the command writes: go generate", name)
			}
		}
	}
}

// TestEncodings holds every instruction that Go's assembler lacks to what LLVM 14 assembles for its name and operands.
func TestEncodings(t *testing.T) {
	f := &file{}
	k := f.kernel("every", "()", "")
	for _, three := range []func(d, n, m vec){k.fadd, k.fsub, k.fmul, k.fdiv, k.fmax, k.fmin, k.umax, k.dot, k.without, k.shiftBytes, k.mulBytes, k.halfSum} {
		three(1, 18, 27)
		three(30, 13, 4)
	}
	for lane := range 4 {
		for _, by := range []func(d, n, m vec, lane int){k.mulAddLane, k.mulSubLane, k.mulLane, k.dotLane} {
			by(1, 18, 27, lane)
		}
	}
	for _, two := range []func(d, n vec){
		k.fneg, k.fabs, k.nearest, k.toInts, k.toFloats, k.largestBits, k.largest, k.sumInts, k.fromHalves, k.fromUpperHalves,
		k.widen, k.widenUpper, k.narrow, k.narrowUpper,
	} {
		two(1, 18)
		two(30, 13)
	}
	k.zero(1)
	k.zero(30)
	k.signedRight(1, 18, 24)
	k.signedRight(30, 13, 1)
	var got []string
	for _, m := range regexp.MustCompile(`WORD \$(0x[0-9a-f]{8}) // (.*)`).FindAllStringSubmatch(f.assembly.String(), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(llvm), "\n"), got); diff != "" {
		t.Errorf("LLVM's encodings (-), those written (+):\n%s", diff)
	}
}

const llvm = `
0x4e3bd641 FADD V1.4S, V18.4S, V27.4S
0x4e24d5be FADD V30.4S, V13.4S, V4.4S
0x4ebbd641 FSUB V1.4S, V18.4S, V27.4S
0x4ea4d5be FSUB V30.4S, V13.4S, V4.4S
0x6e3bde41 FMUL V1.4S, V18.4S, V27.4S
0x6e24ddbe FMUL V30.4S, V13.4S, V4.4S
0x6e3bfe41 FDIV V1.4S, V18.4S, V27.4S
0x6e24fdbe FDIV V30.4S, V13.4S, V4.4S
0x4e3bf641 FMAX V1.4S, V18.4S, V27.4S
0x4e24f5be FMAX V30.4S, V13.4S, V4.4S
0x4ebbf641 FMIN V1.4S, V18.4S, V27.4S
0x4ea4f5be FMIN V30.4S, V13.4S, V4.4S
0x6ebb6641 UMAX V1.4S, V18.4S, V27.4S
0x6ea465be UMAX V30.4S, V13.4S, V4.4S
0x4e9b9641 SDOT V1.4S, V18.16B, V27.16B
0x4e8495be SDOT V30.4S, V13.16B, V4.16B
0x4e7b1e41 BIC V1.16B, V18.16B, V27.16B
0x4e641dbe BIC V30.16B, V13.16B, V4.16B
0x6e3b4641 USHL V1.16B, V18.16B, V27.16B
0x6e2445be USHL V30.16B, V13.16B, V4.16B
0x4e3b9e41 MUL V1.16B, V18.16B, V27.16B
0x4e249dbe MUL V30.16B, V13.16B, V4.16B
0x6e3b0641 UHADD V1.16B, V18.16B, V27.16B
0x6e2405be UHADD V30.16B, V13.16B, V4.16B
0x4f9b1241 FMLA V1.4S, V18.4S, V27.S[0]
0x4f9b5241 FMLS V1.4S, V18.4S, V27.S[0]
0x4f9b9241 FMUL V1.4S, V18.4S, V27.S[0]
0x4f9be241 SDOT V1.4S, V18.16B, V27.4B[0]
0x4fbb1241 FMLA V1.4S, V18.4S, V27.S[1]
0x4fbb5241 FMLS V1.4S, V18.4S, V27.S[1]
0x4fbb9241 FMUL V1.4S, V18.4S, V27.S[1]
0x4fbbe241 SDOT V1.4S, V18.16B, V27.4B[1]
0x4f9b1a41 FMLA V1.4S, V18.4S, V27.S[2]
0x4f9b5a41 FMLS V1.4S, V18.4S, V27.S[2]
0x4f9b9a41 FMUL V1.4S, V18.4S, V27.S[2]
0x4f9bea41 SDOT V1.4S, V18.16B, V27.4B[2]
0x4fbb1a41 FMLA V1.4S, V18.4S, V27.S[3]
0x4fbb5a41 FMLS V1.4S, V18.4S, V27.S[3]
0x4fbb9a41 FMUL V1.4S, V18.4S, V27.S[3]
0x4fbbea41 SDOT V1.4S, V18.16B, V27.4B[3]
0x6ea0fa41 FNEG V1.4S, V18.4S
0x6ea0f9be FNEG V30.4S, V13.4S
0x4ea0fa41 FABS V1.4S, V18.4S
0x4ea0f9be FABS V30.4S, V13.4S
0x4e218a41 FRINTN V1.4S, V18.4S
0x4e2189be FRINTN V30.4S, V13.4S
0x4e21aa41 FCVTNS V1.4S, V18.4S
0x4e21a9be FCVTNS V30.4S, V13.4S
0x4e21da41 SCVTF V1.4S, V18.4S
0x4e21d9be SCVTF V30.4S, V13.4S
0x6eb0aa41 UMAXV S1, V18.4S
0x6eb0a9be UMAXV S30, V13.4S
0x6e30fa41 FMAXV S1, V18.4S
0x6e30f9be FMAXV S30, V13.4S
0x4eb1ba41 ADDV S1, V18.4S
0x4eb1b9be ADDV S30, V13.4S
0x0e217a41 FCVTL V1.4S, V18.4H
0x0e2179be FCVTL V30.4S, V13.4H
0x4e217a41 FCVTL2 V1.4S, V18.8H
0x4e2179be FCVTL2 V30.4S, V13.8H
0x2e613a41 SHLL V1.4S, V18.4H, #16
0x2e6139be SHLL V30.4S, V13.4H, #16
0x6e613a41 SHLL2 V1.4S, V18.8H, #16
0x6e6139be SHLL2 V30.4S, V13.8H, #16
0x0e612a41 XTN V1.4H, V18.4S
0x0e6129be XTN V30.4H, V13.4S
0x0f108641 SHRN V1.4H, V18.4S, #16
0x0f1085be SHRN V30.4H, V13.4S, #16
0x6f00e401 MOVI V1.2D, #0
0x6f00e41e MOVI V30.2D, #0
0x4f280641 SSHR V1.4S, V18.4S, #24
0x4f3f05be SSHR V30.4S, V13.4S, #1
`
