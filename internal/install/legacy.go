package install

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// packages are the formats of earlier releases' packages, with the model of the family to serve instead.
var packages = map[string]string{
	"splash-packed-q4":     "mlx-community/Qwen3.8-27B-4bit",
	"splash-packed-q4-moe": "mlx-community/Qwen3.6-35B-A3B-4bit",
}

const manifestFile = "manifest.json"

// replacement returns the model to serve in place of the package whose manifest it is; empty for another tool's manifest.
func replacement(manifest []byte) string {
	var m struct {
		Format json.RawMessage `json:"format"`
	}
	var format struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(manifest, &m) != nil || json.Unmarshal(m.Format, &format) != nil {
		return ""
	}
	return packages[format.Name]
}

func errPackage(model, folder, instead string) error {
	files := ""
	if folder != "" {
		files = fmt.Sprintf(" (its files in %s can be deleted)", folder)
	}
	return fmt.Errorf("%s is a Splash package, which Splash no longer loads%s; "+
		"serve the MLX model of its family instead: splash serve --model %s",
		model, files, instead)
}

// installedPackage refuses a selection whose link names a package that an earlier release installed, naming the folder of
// the Hub cache that holds its files.
func installedPackage(model, link string) error {
	real, err := filepath.EvalSymlinks(link)
	if err != nil {
		return nil
	}
	manifest, err := readLimited(filepath.Join(real, manifestFile), maxJSON)
	if err != nil {
		return nil
	}
	instead := replacement(manifest)
	if instead == "" {
		return nil
	}
	folder := real
	if filepath.Base(filepath.Dir(real)) == "snapshots" {
		folder = filepath.Dir(filepath.Dir(real))
	}
	return errPackage(model, folder, instead)
}

// refusePackage refuses a repository or directory that is a package.
func refusePackage(ctx context.Context, src files, model string) error {
	if !src.has(manifestFile) || src.size(manifestFile) > maxJSON {
		return nil
	}
	manifest, err := src.read(ctx, manifestFile, maxJSON)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if instead := replacement(manifest); instead != "" {
		return errPackage(model, "", instead)
	}
	return nil
}
