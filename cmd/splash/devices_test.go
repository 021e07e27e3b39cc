package main

import (
	"encoding/json"
	"strings"
	"testing"

	"splash/internal/target"
	"splash/metal"
)

func TestDevices(t *testing.T) {
	auto, err := target.FindBackend(target.Auto)
	if err != nil {
		t.Fatal(err)
	}
	status, out, _ := invoke(t, "devices")
	if status != 0 || !strings.Contains(out, auto.Name+" (auto)") || !strings.Contains(out, "oracle") {
		t.Errorf("status %d: %s", status, out)
	}
	status, out, _ = invoke(t, "devices", "--json")
	var l deviceList
	if err := json.Unmarshal([]byte(out), &l); err != nil || status != 0 {
		t.Fatal(status, err)
	}
	if len(l.Backends) != len(target.Backends()) || l.Auto != auto.Name {
		t.Errorf("%+v", l)
	}
	for _, b := range l.Backends {
		if b.Name == "metal" && (b.Usable != (metal.Usable() == nil) || b.Usable != (b.Reason == "") || b.Usable && len(b.Devices) == 0) {
			t.Errorf("%+v", b)
		}
	}
	if status, _, _ := invoke(t, "devices", "extra"); status != exitUsage {
		t.Errorf("an argument: status %d", status)
	}
}
