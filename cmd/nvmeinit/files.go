package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// mayCreate rejects an output file that exists. An existing pipe or device is assumed to be intended.
func mayCreate(path string) error {
	if info, err := os.Stat(path); path != "-" && err == nil && info.Mode().IsRegular() {
		return cli.CreateError("--output", path, fs.ErrExist)
	}
	return nil
}

// output is what read writes.
type output struct {
	ctx    context.Context
	file   io.Writer
	name   string
	remove bool // if the copy fails: a part could be mistaken for the whole
}

// createOutput opens the output of read; - is standard output.
func createOutput(ctx context.Context, path string, stdout io.Writer) (*output, error) {
	if path == "-" {
		return &output{ctx: ctx, file: stdout, name: "standard output"}, nil
	}
	flag, special := os.O_CREATE|os.O_EXCL, false
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		flag, special = 0, true
	}
	f, err := cli.Leaving(ctx, 0, func() (*os.File, error) { return os.OpenFile(path, os.O_WRONLY|flag, 0o644) })
	if err != nil {
		return nil, cli.CreateError("--output", path, err)
	}
	return &output{ctx: ctx, file: f, name: path, remove: !special}, nil
}

func (o *output) Write(b []byte) (int, error) {
	n, err := cli.Leaving(o.ctx, 0, func() (int, error) { return o.file.Write(b) })
	if err != nil {
		err = cli.FileError("--output", o.name, err)
	}
	return n, err
}

// close closes the file after a copy that ended with err, and returns what went wrong.
func (o *output) close(err error) error {
	f, ok := o.file.(*os.File)
	if !ok { // standard output, which isn't ours to close
		return err
	}
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = cli.FileError("--output", o.name, closeErr)
	}
	if err != nil && o.remove {
		_ = os.Remove(o.name)
	}
	return err
}

// input is a file to read.
type input struct {
	file io.Reader
	what string // the purpose of the file
	name string
	size int64 // -1 if it isn't known in advance
	ctx  context.Context
}

// openInput opens a file to read; - is standard input. what is the flag that names it, or its purpose.
func openInput(ctx context.Context, what, path string, stdin io.Reader) (*input, error) {
	if path == "-" {
		return &input{file: stdin, what: what, name: "standard input", size: -1, ctx: ctx}, nil
	}
	f, err := cli.Leaving(ctx, 0, func() (*os.File, error) { return os.Open(path) })
	if err != nil {
		return nil, cli.FileError(what, path, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = unix.EISDIR
	}
	if err != nil {
		return nil, errors.Join(cli.FileError(what, path, err), f.Close())
	}
	in := &input{file: f, what: what, name: path, size: -1, ctx: ctx}
	if info.Mode().IsRegular() {
		in.size = info.Size()
	}
	return in, nil
}

func (in *input) Read(b []byte) (int, error) {
	n, err := cli.Leaving(in.ctx, 0, func() (int, error) { return in.file.Read(b) })
	if err != nil && !errors.Is(err, io.EOF) {
		err = cli.FileError(in.what, in.name, err)
	}
	return n, err
}

func (in *input) close() {
	if f, ok := in.file.(*os.File); ok && in.file != os.Stdin {
		f.Close()
	}
}
