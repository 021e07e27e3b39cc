package install

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parts lists the files of a split, without those of the given numbers.
func parts(name string, count int, but ...int) []string {
	var files []string
	for i := 1; i <= count; i++ {
		missing := false
		for _, b := range but {
			missing = missing || b == i
		}
		if !missing {
			files = append(files, fmt.Sprintf("%s-%05d-of-%05d.gguf", name, i, count))
		}
	}
	return files
}

func list(groups ...any) []string {
	var files []string
	for _, g := range groups {
		switch g := g.(type) {
		case string:
			files = append(files, strings.Fields(g)...)
		case []string:
			files = append(files, g...)
		}
	}
	return files
}

// The files of a repository, the variant, and the choice: its files and the line beside it, or the refusal.
func TestSelectGGUF(t *testing.T) {
	const m = "Qwen3.8-27B-"
	unsloth := list("README.md config.json mmproj-BF16.gguf mmproj-F16.gguf mmproj-F32.gguf imatrix_unsloth.gguf_file",
		m+"UD-Q4_K_M.gguf", m+"UD-IQ1_S.gguf", m+"Q4_K_M.gguf", m+"Q8_0.gguf", m+"UD-Q8_K_XL.gguf",
		parts("BF16/"+m+"BF16", 2), "MTP/mtp-head.gguf")
	two := list("M-Q4_K_M.gguf M-Q8_0.gguf")
	note := func(variant, file string) string {
		return fmt.Sprintf("No GGUF is named for :%s alone; using %s, the only one whose name ends in -%s.", variant, file, variant)
	}
	for _, tt := range []struct {
		name    string
		files   []string
		variant string
		want    []string
		note    string
		err     string
	}{
		// Root files and variant words.
		{"one word", two, "Q4_K_M", list("M-Q4_K_M.gguf"), "", ""},
		{"the other", two, "Q8_0", list("M-Q8_0.gguf"), "", ""},
		{"lower case", two, "q4_k_m", list("M-Q4_K_M.gguf"), "", ""},
		{"upper case", list("m-q4_k_m.gguf m-q8_0.gguf"), "Q8_0", list("m-q8_0.gguf"), "", ""},
		{"two words", unsloth, "UD-Q4_K_M", list(m + "UD-Q4_K_M.gguf"), "", ""},
		{"never the longer word", unsloth, "Q4_K_M", list(m + "Q4_K_M.gguf"), "", ""},
		{"one of many", unsloth, "Q8_0", list(m + "Q8_0.gguf"), "", ""},
		{"ud in lower case", unsloth, "ud-iq1_s", list(m + "UD-IQ1_S.gguf"), "", ""},
		{"the last words", unsloth, "UD-Q8_K_XL", list(m + "UD-Q8_K_XL.gguf"), "", ""},
		{"end alone", unsloth, "Q8_K_XL", list(m + "UD-Q8_K_XL.gguf"), note("Q8_K_XL", m+"UD-Q8_K_XL.gguf"), ""},
		{"end of one word", unsloth, "IQ1_S", list(m + "UD-IQ1_S.gguf"), note("IQ1_S", m+"UD-IQ1_S.gguf"), ""},
		{"end in lower case", unsloth, "iq1_s", list(m + "UD-IQ1_S.gguf"), note("iq1_s", m+"UD-IQ1_S.gguf"), ""},
		{"half a word", unsloth, "K_M", nil, "", "no single GGUF matches :K_M (files in the repository root: " + m + "Q4_K_M.gguf, " + m + "Q8_0.gguf, " + m + "UD-IQ1_S.gguf, " + m + "UD-Q4_K_M.gguf, " + m + "UD-Q8_K_XL.gguf; folders of split files: BF16/" + m + "BF16-00001-of-00002.gguf)"},
		{"single target by its end", list("M-Q4_K_M.gguf"), "Q4_K_M", list("M-Q4_K_M.gguf"), "", ""},
		{"single target by a longer end", list("M-UD-Q4_K_M.gguf"), "UD-Q4_K_M", list("M-UD-Q4_K_M.gguf"), "", ""},
		{"single target by a shorter end", list("M-UD-Q4_K_M.gguf"), "Q4_K_M", list("M-UD-Q4_K_M.gguf"), "", ""},
		{"single target of another variant", list("M-Q4_K_M.gguf"), "Q8_0", nil, "", "no single GGUF matches :Q8_0 (files in the repository root: M-Q4_K_M.gguf)"},
		{"single target with projector", list("M-PQ2_0.gguf M-mmproj-BF16.gguf"), "PQ2_0", list("M-PQ2_0.gguf"), "", ""},
		{"name without a dash", list("Q4_K_M.gguf"), "Q4_K_M", nil, "", "no single GGUF matches :Q4_K_M (files in the repository root: Q4_K_M.gguf)"},
		{"names without dashes", list("Q4_K_M.gguf Q8_0.gguf"), "Q8_0", list("Q8_0.gguf"), "", ""},
		{"dots are no dashes", list("m.Q4_K_M.gguf m.Q8_0.gguf"), "Q8_0", nil, "", "no single GGUF matches :Q8_0 (files in the repository root: m.Q4_K_M.gguf, m.Q8_0.gguf)"},
		{"one model's name begins the other's", list("M-Q4.gguf M-Q4-imat.gguf"), "imat", list("M-Q4-imat.gguf"), "", ""},
		{"the shorter of two names", list("M-Q4.gguf M-Q4-imat.gguf"), "Q4", list("M-Q4.gguf"), note("Q4", "M-Q4.gguf"), ""},
		{"two models in one repository", list("A-Q4_K_M.gguf B-Q4_K_M.gguf"), "Q4_K_M", nil, "", "no single GGUF matches :Q4_K_M (files in the repository root: A-Q4_K_M.gguf, B-Q4_K_M.gguf)"},
		{"two models, one named whole", list("A-Q4_K_M.gguf B-Q4_K_M.gguf"), "A-Q4_K_M", list("A-Q4_K_M.gguf"), "", ""},
		{"two models, one has the variant", list("A-Q4_K_M.gguf B-Q8_0.gguf"), "Q8_0", list("B-Q8_0.gguf"), note("Q8_0", "B-Q8_0.gguf"), ""},
		{"names that differ in case", list("M-q4.gguf M-Q4.gguf M-Q8.gguf"), "Q4", nil, "", "no single GGUF matches :Q4 (files in the repository root: M-Q4.gguf, M-Q8.gguf, M-q4.gguf)"},
		{"nothing", nil, "Q4_K_M", nil, "", "no single GGUF matches :Q4_K_M (files in the repository root: none)"},
		{"projectors alone", list("mmproj-BF16.gguf"), "BF16", nil, "", "no single GGUF matches :BF16 (files in the repository root: none)"},
		{"variant of a projector", list("M-Q4.gguf M-Q8.gguf mmproj-BF16.gguf"), "BF16", nil, "", "no single GGUF matches :BF16 (files in the repository root: M-Q4.gguf, M-Q8.gguf)"},
		{"projector in capitals", list("M-Q4.gguf M-Q8.gguf M-MMPROJ-Q4.gguf"), "Q4", list("M-Q4.gguf"), "", ""},
		{"extension in capitals", list("M-Q4.GGUF M-Q8.gguf"), "Q4", nil, "", "no single GGUF matches :Q4 (files in the repository root: M-Q8.gguf)"},
		{"other extensions", list("M-Q4.gguf.part M-Q4.gguf_file M-Q8.gguf"), "Q4", nil, "", "no single GGUF matches :Q4 (files in the repository root: M-Q8.gguf)"},

		// Folders.
		{"folder", list(parts("UD-Q4_K_XL/M-UD-Q4_K_XL", 2), parts("Q8_0/M-Q8_0", 3)), "Q8_0", parts("Q8_0/M-Q8_0", 3), "", ""},
		{"folder in another case", list(parts("ud-q4_k_xl/M", 2)), "UD-Q4_K_XL", parts("ud-q4_k_xl/M", 2), "", ""},
		{"folder of twelve parts", parts("Q8_0/M", 12), "Q8_0", parts("Q8_0/M", 12), "", ""},
		{"folder of one part", parts("Q8_0/M", 1), "Q8_0", parts("Q8_0/M", 1), "", ""},
		{"folder beside roots", unsloth, "BF16", parts("BF16/"+m+"BF16", 2), "", ""},
		{"root before folder", list("M-Q4.gguf M-Q8.gguf", parts("Q4/M-Q4", 2)), "Q4", list("M-Q4.gguf"), "", ""},
		{"folder before an end", list("M-UD-Q4.gguf M-Q8.gguf", parts("Q4/M-Q4", 2)), "Q4", parts("Q4/M-Q4", 2), "", ""},
		{"end beside folders", list("M-Q4.gguf", parts("Q8/M-Q8", 2)), "Q4", list("M-Q4.gguf"), note("Q4", "M-Q4.gguf"), ""},
		{"whole file in a folder", list("Q4/M-Q4.gguf"), "Q4", nil, "", "no single GGUF matches :Q4 (files in the repository root: none)"},
		{"folder in a folder", parts("quants/Q4/M-Q4", 2), "Q4", nil, "", "no single GGUF matches :Q4 (files in the repository root: none)"},
		{"folders that differ in case", list(parts("Q4/M", 1), parts("q4/M", 1)), "Q4", nil, "", "no single GGUF matches :Q4 (files in the repository root: none; folders of split files: Q4/M-00001-of-00001.gguf, q4/M-00001-of-00001.gguf)"},
		{"mixed folder", list(parts("Q4/A", 2), parts("Q4/B", 2)), "Q4", nil, "", "folder Q4 mixes the parts of several GGUFs: A, B"},
		{"mixed folder, one of them whole", list(parts("Q4/A", 2), "Q4/B.gguf"), "Q4", parts("Q4/A", 2), "", ""},
		{"mixed folder not chosen", list(parts("Q4/A", 2), parts("Q4/B", 2), "M-Q8.gguf M-Q6.gguf"), "Q8", list("M-Q8.gguf"), "", ""},
		{"folder with a projector's parts", list(parts("Q4/M", 2), parts("Q4/mmproj", 2)), "Q4", parts("Q4/M", 2), "", ""},
		{"incomplete folder", parts("Q4/M", 3, 2), "Q4", nil, "", "M-00002-of-00003.gguf is missing: M is split into 3 parts"},
		{"folder without its first part", parts("Q4/M", 3, 1), "Q4", nil, "", "M-00001-of-00003.gguf is missing: M is split into 3 parts"},
		{"stray part of another count", list(parts("Q4/M", 3), "Q4/M-00002-of-00004.gguf"), "Q4", parts("Q4/M", 3), "", ""},
		{"two complete splits", list(parts("Q4/M", 2), parts("Q4/M", 3)), "Q4", nil, "", "M is split both into 2 and into 3 parts"},

		// Splits at the root, and merges.
		{"split at the root", list(parts("M-Q4", 3), "M-Q8.gguf"), "Q4", parts("M-Q4", 3), "", ""},
		{"two splits at the root", list(parts("M-Q4", 3), parts("M-Q8", 2)), "Q8", parts("M-Q8", 2), "", ""},
		{"split listed backwards", list("M-Q4-00002-of-00002.gguf M-Q4-00001-of-00002.gguf"), "Q4", parts("M-Q4", 2), "", ""},
		{"split by its end", list(parts("M-UD-Q4", 2), "M-Q8.gguf"), "Q4", parts("M-UD-Q4", 2), note("Q4", "M-UD-Q4-00001-of-00002.gguf"), ""},
		{"incomplete split at the root", list(parts("M-Q4", 3, 3), "M-Q8.gguf"), "Q4", nil, "", "M-Q4-00003-of-00003.gguf is missing: M-Q4 is split into 3 parts"},
		{"merge beside its parts", list("M-Q4.gguf", parts("M-Q4", 2), "M-Q8.gguf"), "Q4", list("M-Q4.gguf"), "", ""},
		{"merge beside incomplete parts", list("M-Q4.gguf", parts("M-Q4", 2, 1), "M-Q8.gguf"), "Q4", list("M-Q4.gguf"), "", ""},
		{"the only name, a merge", list("M-Q4.gguf", parts("M-Q4", 2)), "Q4", list("M-Q4.gguf"), "", ""},
		{"part of no split", list("M-Q4-00003-of-00002.gguf M-Q8.gguf"), "Q8", list("M-Q8.gguf"), "", ""},
		{"part with four digits", list("M-Q4-0001-of-0002.gguf M-Q8.gguf"), "0002", list("M-Q4-0001-of-0002.gguf"), note("0002", "M-Q4-0001-of-0002.gguf"), ""},
		{"parts without a name", list("-00001-of-00002.gguf M-Q8.gguf"), "Q8", list("M-Q8.gguf"), note("Q8", "M-Q8.gguf"), ""},

		// Without a variant.
		{"the only file", list("README.md M-Q4.gguf"), "", list("M-Q4.gguf"), "", ""},
		{"the only file beside projectors", list("M-Q4.gguf mmproj-F16.gguf x-mmproj.gguf"), "", list("M-Q4.gguf"), "", ""},
		{"the only split", parts("M-Q4", 3), "", parts("M-Q4", 3), "", ""},
		{"the only folder", parts("Q4/M-Q4", 3), "", parts("Q4/M-Q4", 3), "", ""},
		{"the only name, whole before parts", list(parts("M-Q4", 3), "M-Q4.gguf"), "", list("M-Q4.gguf"), "", ""},
		{"the only name, incomplete", parts("M-Q4", 3, 2), "", nil, "", "M-Q4-00002-of-00003.gguf is missing: M-Q4 is split into 3 parts"},
		{"two names", two, "", nil, "", "select a GGUF with OWNER/REPO:VARIANT (files in the repository root: M-Q4_K_M.gguf, M-Q8_0.gguf)"},
		{"a file and a folder", list("M-Q4.gguf", parts("Q8/M-Q8", 2)), "", nil, "", "select a GGUF with OWNER/REPO:VARIANT (files in the repository root: M-Q4.gguf; folders of split files: Q8/M-Q8-00001-of-00002.gguf)"},
		{"no GGUF", list("README.md model.bin"), "", nil, "", "select a GGUF with OWNER/REPO:VARIANT (files in the repository root: none)"},
		{"whole files in folders alone", list("Q4/M.gguf Q8/M.gguf"), "", nil, "", "select a GGUF with OWNER/REPO:VARIANT (files in the repository root: none)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := SelectGGUF(tt.files, tt.variant)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("error %v\n want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(Choice{tt.want, tt.note}, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Whatever the names, a choice is of files that are there, and the order of the listing does not matter.
func FuzzSelectGGUF(f *testing.F) {
	f.Add("M-Q4.gguf M-Q8.gguf", "Q4")
	f.Add("Q4/M-00001-of-00002.gguf Q4/M-00002-of-00002.gguf", "q4")
	f.Add("M-00001-of-99999.gguf", "")
	f.Fuzz(func(t *testing.T, names, variant string) {
		files := strings.Fields(names)
		got, err := SelectGGUF(files, variant)
		for i, j := 0, len(files)-1; i < j; i, j = i+1, j-1 {
			files[i], files[j] = files[j], files[i]
		}
		again, errAgain := SelectGGUF(files, variant)
		if d := cmp.Diff(got, again); d != "" || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("the order of the listing matters: %s %v, %v", d, err, errAgain)
		}
		if err == nil && len(got.Files) == 0 {
			t.Error("a choice of no files")
		}
		for _, file := range got.Files {
			if !strings.Contains(" "+names+" ", file) {
				t.Errorf("%q is not in the repository", file)
			}
		}
	})
}
