package metal

import "testing"

func TestFastInt8(t *testing.T) {
	for name, want := range map[string]bool{
		"Apple M1": false, "Apple M4 Max": false, "Apple M5": true, "Apple M5 Pro": true, "Apple M10 Ultra": true, "Apple M": false,
		"Apple A19 Pro": false, "host, 8 threads": false, "": false, "M5": false,
	} {
		if got := fastInt8(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
