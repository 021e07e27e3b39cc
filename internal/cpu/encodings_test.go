package cpu

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEncodings holds instructions that are written byte by byte to what GNU as makes of the comment above them
// (testdata/encodings.txt).
func TestEncodings(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "encodings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if code, text, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && !strings.HasPrefix(line, "#") {
			want[text] = code
		}
	}
	files, err := filepath.Glob("*_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	aByte := regexp.MustCompile(`^\tBYTE +\$(0x[0-9a-f]{2})$`)
	used := map[string]bool{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		comment, code := "", ""
		for line := range strings.Lines(string(data) + "\n") {
			line = strings.TrimSuffix(line, "\n")
			if m := aByte.FindStringSubmatch(line); m != nil {
				b, err := strconv.ParseUint(m[1], 0, 8)
				if err != nil {
					t.Fatal(err)
				}
				code += hex.EncodeToString([]byte{byte(b)})
				continue
			}
			if code != "" {
				if want[comment] == "" || want[comment] != code {
					t.Errorf("%s: %s is %s, and GNU as makes it %q", name, comment, code, want[comment])
				}
				used[comment] = true
			}
			code = ""
			comment = ""
			if text, ok := strings.CutPrefix(line, "\t// "); ok {
				comment = text
			}
		}
	}
	for text := range want {
		if !used[text] {
			t.Errorf("no kernel has %s", text)
		}
	}
}
