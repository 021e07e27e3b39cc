package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"splash/internal/filemap"
)

// A File is an opened GGUF: the parts of a split as one. Its bytes are mapped, read-only, until Close.
type File struct {
	*Header
	Paths []string // of the parts, in order

	maps  [][]byte
	infos []fs.FileInfo
}

// Open opens the GGUF at path: a file, any part of a split, or a directory of one target as FindTarget finds it. Files
// that change meanwhile are refused.
//
// The bytes of Data are those on disk. Where another process cuts a file short later, reading them faults as any mapped
// memory does; Unchanged tells afterwards whether what was read was the file as it was opened.
func Open(path string) (*File, error) { return Options{}.Open(path) }

// Open opens a GGUF as the function Open does.
func (o Options) Open(path string) (*File, error) {
	return o.open(path, func() {})
}

// open calls parsed between reading the headers and mapping the files.
func (o Options) open(path string, parsed func()) (*File, error) {
	find := findParts
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		find = findInFolder
	}
	paths, err := find(path)
	if err != nil {
		return nil, err
	}
	f := &File{Paths: paths}
	if err := f.load(o, parsed); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) load(o Options, parsed func()) error {
	var files []*os.File
	defer func() {
		for _, file := range files {
			file.Close() // read-only; a mapping outlives it
		}
	}()
	var headers []*Header
	for _, path := range f.Paths {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		files = append(files, file)
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: not a regular file", path)
		}
		f.infos = append(f.infos, info)
		header, err := o.Parse(file, info.Size(), path)
		if err != nil {
			return err
		}
		headers = append(headers, header)
	}
	var err error
	if f.Header, err = Join(headers); err != nil {
		return err
	}
	parsed()
	for i, file := range files {
		bytes, err := filemap.Map(file, f.infos[i].Size())
		if err != nil {
			return fmt.Errorf("%s: mapping %d bytes: %w", f.Paths[i], f.infos[i].Size(), err)
		}
		f.maps = append(f.maps, bytes)
	}
	return f.Unchanged()
}

// Unchanged reports an error when a file is no longer the one that was opened: another size, another time of
// modification, or another file under the name.
func (f *File) Unchanged() error {
	for i, path := range f.Paths {
		was := f.infos[i]
		now, err := os.Stat(path)
		switch {
		case err != nil:
			return fmt.Errorf("%s: changed since it was opened: %w", path, err)
		case now.Size() != was.Size():
			return fmt.Errorf("%s: changed since it was opened: %d bytes, was %d", path, now.Size(), was.Size())
		case !os.SameFile(was, now):
			return fmt.Errorf("%s: changed since it was opened: another file has its name", path)
		case !now.ModTime().Equal(was.ModTime()):
			return fmt.Errorf("%s: changed since it was opened: it was written to", path)
		}
	}
	return nil
}

// Data returns the bytes of a tensor of the file, in place. They are read-only and end with Close.
func (f *File) Data(t *Tensor) []byte {
	_, from, to := f.place(t)
	return f.maps[t.Part][from:to:to]
}

// Close unmaps the files. Bytes that Data and Matrix gave must not be used after it.
func (f *File) Close() error {
	var errs []error
	for i, bytes := range f.maps[:min(len(f.maps), len(f.Paths))] { // what FromBytes got is not ours to unmap
		if err := filemap.Unmap(bytes); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Paths[i], err))
		}
	}
	f.maps = nil
	return errors.Join(errs...)
}
