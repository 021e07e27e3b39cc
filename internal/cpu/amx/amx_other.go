//go:build !(linux && amd64)

package amx

// present is false where nothing is known of how to ask for tiles.
func present() bool { return false }
