package server

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A ThinkingKey hides reasoning that a client of the Messages interface is not shown, in a signature that only this key
// opens. Signatures are Fernet tokens (github.com/fernet/spec, version 0x80): AES-128-CBC, then HMAC-SHA256.
type ThinkingKey struct{ sign, encrypt [16]byte }

// mostSignature bounds a signature that a client sends back.
const mostSignature = 16 << 20

// NewThinkingKey returns a key that nobody knows.
func NewThinkingKey() *ThinkingKey {
	var k ThinkingKey
	rand.Read(k.sign[:])
	rand.Read(k.encrypt[:])
	return &k
}

// ParseThinkingKey reads a key as its file spells it: 32 bytes in URL-safe base64.
func ParseThinkingKey(text []byte) (*ThinkingKey, error) {
	b, err := base64.URLEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(b) != 32 {
		return nil, errors.New("not 32 bytes in URL-safe base64")
	}
	var k ThinkingKey
	copy(k.sign[:], b)
	copy(k.encrypt[:], b[16:])
	return &k, nil
}

func (k *ThinkingKey) String() string {
	return base64.URLEncoding.EncodeToString(append(k.sign[:len(k.sign):len(k.sign)], k.encrypt[:]...))
}

// LoadThinkingKey reads the key in a file, or makes the file. Several processes that start at once come to one key.
func LoadThinkingKey(path string) (*ThinkingKey, error) {
	fail := func(err error) error { return fmt.Errorf("cannot use thinking key %s: %w", path, err) }
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := createThinkingKey(path); err != nil {
			return nil, fail(err)
		}
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fail(err)
	}
	k, err := ParseThinkingKey(text)
	if err != nil {
		return nil, fail(err)
	}
	return k, nil
}

// createThinkingKey makes the file whole or not at all, unless another process has.
func createThinkingKey(path string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".thinking-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(NewThinkingKey().String() + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// seal hides a text in a signature.
func (k *ThinkingKey) seal(text string, now time.Time) string {
	pad := aes.BlockSize - len(text)%aes.BlockSize
	plain := append([]byte(text), bytes.Repeat([]byte{byte(pad)}, pad)...)
	const head = 1 + 8 + aes.BlockSize
	token := make([]byte, head, head+len(plain)+sha256.Size)
	token[0] = 0x80
	binary.BigEndian.PutUint64(token[1:], uint64(now.Unix()))
	iv := token[9:head]
	rand.Read(iv)
	cipher.NewCBCEncrypter(k.cipher(), iv).CryptBlocks(plain, plain)
	token = append(token, plain...)
	return base64.URLEncoding.EncodeToString(append(token, k.mac(token)...))
}

// open returns the text of a signature; ok is false for one that this key did not make.
func (k *ThinkingKey) open(signature string) (text string, ok bool) {
	if len(signature) > mostSignature {
		return "", false
	}
	token, err := base64.URLEncoding.DecodeString(signature)
	const head = 1 + 8 + aes.BlockSize
	n := len(token) - sha256.Size
	if err != nil || n < head+aes.BlockSize || (n-head)%aes.BlockSize != 0 || token[0] != 0x80 || !hmac.Equal(token[n:], k.mac(token[:n])) {
		return "", false
	}
	plain := token[head:n]
	cipher.NewCBCDecrypter(k.cipher(), token[9:head]).CryptBlocks(plain, plain)
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > aes.BlockSize {
		return "", false
	}
	return string(plain[:len(plain)-pad]), true
}

func (k *ThinkingKey) cipher() cipher.Block {
	b, err := aes.NewCipher(k.encrypt[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	return b
}

func (k *ThinkingKey) mac(data []byte) []byte {
	h := hmac.New(sha256.New, k.sign[:])
	h.Write(data)
	return h.Sum(nil)
}
