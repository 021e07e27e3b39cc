//go:build !amd64

package scan

var notAbove kernel
