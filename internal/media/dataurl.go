package media

import (
	"encoding/base64"
	"strings"
)

// CheckURL refuses an image that is not in the request itself.
func CheckURL(url string) error {
	if !strings.HasPrefix(url, "data:") {
		return errNotData
	}
	return nil
}

// decodeURL returns the bytes of an image's data URL.
func decodeURL(url string) ([]byte, error) {
	if err := CheckURL(url); err != nil {
		return nil, err
	}
	header, encoded, _ := strings.Cut(url, ",")
	if !strings.Contains(header, ";base64") {
		return nil, errorf("image data URLs must be base64-encoded")
	}
	return decodeBase64("image", encoded, MaxFileBytes)
}

// decodeBase64 decodes base64 of at most limit bytes.
func decodeBase64(what, encoded string, limit int) ([]byte, error) {
	if int64(len(encoded)) > int64(base64.StdEncoding.EncodedLen(limit)) {
		return nil, errorf("%s exceeds the size limit of %d MiB", what, limit>>20)
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return nil, errorf("%s data is not valid base64", what)
	case len(data) > limit:
		return nil, errorf("%s exceeds the size limit of %d MiB", what, limit>>20)
	}
	return data, nil
}
