//go:build !cgo

package metal

import (
	"strings"
	"testing"
)

func TestOff(t *testing.T) {
	if _, err := Open("metal"); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("a device without cgo: %v", err)
	}
	if n := len(Devices()); n != 0 {
		t.Errorf("%d devices", n)
	}
}
