package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// copyChunk is how much is read or written at a time; the host core keeps several commands of it outstanding.
const copyChunk = 8 << 20

// copyFlags says which range to move, and where to.
type copyFlags struct {
	conn   connFlags
	nsid   uint32
	offset cli.Size
	length cli.Size
	file   string
	verify bool
	quiet  bool
}

// add defines the flags; --verify only if there is help for it.
func (f *copyFlags) add(c *cobra.Command, fileFlag, fileHelp, verifyHelp string) {
	fl := c.Flags()
	fl.Uint32Var(&f.nsid, "nsid", 1, "`number` of the namespace")
	fl.Var(&f.offset, "offset", "where to begin, in bytes, as 64MiB (default 0)")
	fl.Var(&f.length, lengthFlag, "bytes to move, as 8MiB (default all there is)")
	fl.StringVar(&f.file, fileFlag, "-", fileHelp)
	if verifyHelp != "" {
		fl.BoolVar(&f.verify, "verify", false, verifyHelp)
	}
	fl.BoolVar(&f.quiet, "quiet", false, "show no progress and no summary")
	f.conn.paths.add(c, "any of these")
	f.conn.add(c, true)
}

const lengthFlag = "length"

// checkLength rejects an explicit length of 0: it would mean the whole namespace, as if no length was given.
func (f *copyFlags) checkLength(c *cobra.Command) error {
	if f.length == 0 && c.Flags().Changed(lengthFlag) {
		return cli.Usage("--%s 0: want at least one block; leave it out to move all there is", lengthFlag)
	}
	return nil
}

const inputHelp = "`FILE` to read; - for standard input"

func newRead() *cobra.Command {
	f := &copyFlags{}
	c := &cobra.Command{
		Use:   "read -t TRANSPORT -a ADDRESS --output FILE",
		Short: "Copy a range of a namespace to a file or pipe",
		Long: `read copies a range of a namespace to a file that doesn't exist yet, or to a pipe.
Offset and length are in bytes and must be whole blocks. When it fails, it leaves no
file behind; when a block can't be read, it says which is the first, if the target's
error log does.`,
		Example: `  nvmeinit read -t rdma -a 127.0.0.1 --nsid 1 --offset 0 --length 8MiB --output part.img
  nvmeinit read -t tcp -a 127.0.0.1 --length 1MiB | sha256sum`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("output") && isTerminal(c.OutOrStdout()) {
				return cli.Usage("standard output is a terminal, which data would upset: give --output FILE, or a pipe, or --output - all the same")
			}
			return readCommand(c, f)
		},
	}
	f.add(c, "output", "`FILE` to write, which must not exist; - for standard output", "read the range a second time and compare")
	return c
}

func newWrite() *cobra.Command {
	f := &copyFlags{}
	c := &cobra.Command{
		Use:   "write -t TRANSPORT -a ADDRESS --input FILE",
		Short: "Copy a file or pipe to a range of a namespace",
		Long: `write copies a file or pipe to a range of a namespace, and flushes it, so that it is
durable when the command ends. Offset and length are in bytes and must be whole
blocks, and so must be what the file holds.`,
		Example: `  nvmeinit write -t rdma -a 127.0.0.1 --nsid 1 --offset 0 --input disk.img --verify
  tar c -b 8 dir | nvmeinit write -t tcp -a 127.0.0.1    # in blocks of 4096 bytes`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return inputCommand(c, f, consumer{"write", "wrote", writeAt, func(cp *copier, n int64) error {
				if err := cp.ns.Flush(c.Context()); err != nil || !f.verify {
					return err
				}
				return cp.readAgain(c, f, n)
			}})
		},
	}
	f.add(c, "input", inputHelp, "read everything back and compare")
	return c
}

// copier moves data between a namespace and a stream.
type copier struct {
	ns     *host.Namespace
	buf    []byte
	offset int64
	sum    hash.Hash // of what was moved; nil without --verify, as it takes longer than moving
	bar    *progressBar
	use    consumer // of the stream, if it is an input
}

// inside rejects a range, which begins at off as the flag start says, unless it is of whole blocks inside the namespace.
func inside(ns *host.Namespace, start string, off, n int64) error {
	block, end := int64(ns.BlockSize()), ns.Size()
	switch {
	case off%block != 0:
		return cli.Usage("--%s %d: want multiples of the namespace's block, %d bytes", start, off, block)
	case n%block != 0:
		return cli.Usage("--length %d: want multiples of the namespace's block, %d bytes", n, block)
	case off > end:
		return cli.Usage("--%s %s is beyond the namespace's end at %s", start, blockdev.FormatSize(off), blockdev.FormatSize(end))
	case n > end-off:
		return cli.Usage("--length %s from --%s %s on reach beyond the namespace's end at %s",
			blockdev.FormatSize(n), start, blockdev.FormatSize(off), blockdev.FormatSize(end))
	}
	return nil
}

// withCopier connects, checks the range, and runs do.
func withCopier(c *cobra.Command, f *copyFlags, do func(*copier) error) (err error) {
	d, err := f.conn.open(c.Context(), f.nsid)
	if err != nil {
		return err
	}
	defer closing(d, &err)
	ns := d.ns
	if err := inside(ns, "offset", int64(f.offset), int64(f.length)); err != nil {
		return err
	}
	buf, err := d.Alloc(copyChunk)
	if err != nil {
		return err
	}
	defer d.Free(buf)
	return do(newCopier(ns, buf, f))
}

func newCopier(ns *host.Namespace, buf []byte, f *copyFlags) *copier {
	cp := &copier{ns: ns, buf: buf, offset: int64(f.offset)}
	if f.verify {
		cp.sum = sha256.New()
	}
	return cp
}

func readCommand(c *cobra.Command, f *copyFlags) error {
	if err := f.checkLength(c); err != nil {
		return err
	}
	if err := mayCreate(f.file); err != nil {
		return err // before data is requested from anybody
	}
	return withCopier(c, f, func(cp *copier) error {
		if cp.offset == cp.ns.Size() {
			return cli.Usage("--offset %s is the namespace's end: there is nothing to read", blockdev.FormatSize(cp.offset))
		}
		out, err := createOutput(c.Context(), f.file, c.OutOrStdout())
		if err != nil {
			return err
		}
		return out.close(readTo(c, f, cp, out))
	})
}

func readTo(c *cobra.Command, f *copyFlags, cp *copier, out *output) error {
	n := int64(f.length)
	if n == 0 {
		n = cp.ns.Size() - cp.offset
	}
	began := time.Now()
	cp.bar = newProgress(c.ErrOrStderr(), "read", n, f.quiet)
	w := io.Writer(out)
	if f.verify {
		w = io.MultiWriter(out, cp.sum)
	}
	err := cp.read(c.Context(), w, n)
	cp.bar.stop()
	if err == nil && f.verify {
		err = cp.readAgain(c, f, n)
	}
	if err == nil {
		summarize(c.ErrOrStderr(), "read", n, time.Since(began), f)
	}
	return err
}

// read copies n bytes of the namespace to w.
func (cp *copier) read(ctx context.Context, w io.Writer, n int64) error {
	for done := int64(0); done < n; {
		b := cp.buf[:min(int64(len(cp.buf)), n-done)]
		if _, err := cp.ns.ReadAt(ctx, b, cp.offset+done); err != nil {
			return firstUnreadable(ctx, cp.ns, err)
		}
		if wrote, err := w.Write(b); err != nil {
			return cli.Say(err, "%v after %s", err, blockdev.FormatSize(done+int64(wrote)))
		}
		done += int64(len(b))
		cp.bar.add(len(b))
	}
	return nil
}

// readAgain reads the range once more; it must have the same SHA-256.
func (cp *copier) readAgain(c *cobra.Command, f *copyFlags, n int64) error {
	cp.bar = newProgress(c.ErrOrStderr(), "verify", n, f.quiet)
	defer cp.bar.stop()
	again := sha256.New()
	if err := cp.read(c.Context(), again, n); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	got, want := again.Sum(nil), cp.sum.Sum(nil)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("verify: %s at offset %s read back differ: SHA-256 %x, want %x",
			blockdev.FormatSize(n), blockdev.FormatSize(cp.offset), got, want)
	}
	return nil
}

// consumer is what a command does with its input.
type consumer struct {
	verb, done string // "write", "wrote"
	send       func(ctx context.Context, ns *host.Namespace, p []byte, off int64) error
	finish     func(cp *copier, n int64) error
}

func writeAt(ctx context.Context, ns *host.Namespace, p []byte, off int64) error {
	_, err := ns.WriteAt(ctx, p, off)
	return err
}

// inputCommand has use consume a file or pipe.
func inputCommand(c *cobra.Command, f *copyFlags, use consumer) error {
	if err := f.checkLength(c); err != nil {
		return err
	}
	in, err := openInput(c.Context(), "--input", f.file, c.InOrStdin())
	if err != nil {
		return err
	}
	defer in.close()
	size := in.size
	if f.length != 0 && size >= 0 && size < int64(f.length) {
		return cli.Usage("--input %s has %s, less than --length %s", f.file, blockdev.FormatSize(size), blockdev.FormatSize(int64(f.length)))
	}
	return withCopier(c, f, func(cp *copier) error {
		limit := cp.ns.Size() - cp.offset
		total := size
		if f.length != 0 {
			total, limit = int64(f.length), int64(f.length)
		}
		if size >= 0 && f.length == 0 {
			if err := fits(f.file, size, limit, cp.ns.BlockSize(), use.verb); err != nil {
				return err
			}
		}
		began := time.Now()
		cp.use = use
		cp.bar = newProgress(c.ErrOrStderr(), use.verb, total, f.quiet)
		n, err := cp.consume(c.Context(), in, limit, f.length != 0)
		cp.bar.stop()
		if err == nil {
			err = use.finish(cp, n)
		}
		if err == nil {
			summarize(c.ErrOrStderr(), use.done, n, time.Since(began), f)
		}
		return err
	})
}

// fits checks a file against the available room before anything is sent.
func fits(path string, size, room int64, block int, verb string) error {
	switch {
	case size%int64(block) != 0:
		return cli.Usage("--input %s has %d bytes, which is not a multiple of the namespace's block, %d bytes; pad it, or %s a part of it with --length",
			path, size, block, verb)
	case size > room:
		return cli.Usage("--input %s has %s, but the namespace has room for %s from the offset on; %s a part of it with --length",
			path, blockdev.FormatSize(size), blockdev.FormatSize(room), verb)
	}
	return nil
}

// consume sends in until its end, or until limit if exactly that much is requested, and returns how much it was.
func (cp *copier) consume(ctx context.Context, in io.Reader, limit int64, exact bool) (int64, error) {
	done := int64(0)
	for done < limit {
		n, err := io.ReadFull(in, cp.buf[:min(int64(len(cp.buf)), limit-done)])
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return done, cli.Say(err, "%v after %s", err, blockdev.FormatSize(done+int64(n)))
		}
		if err := cp.consumeChunk(ctx, cp.buf[:n], done); err != nil {
			return done, err
		}
		done += int64(n)
		if end {
			break
		}
	}
	if exact && done < limit {
		return done, fmt.Errorf("--input ended after %s, less than --length", blockdev.FormatSize(done))
	}
	if done == limit && !exact {
		if n, _ := in.Read(cp.buf[:1]); n > 0 {
			return done, fmt.Errorf("the namespace ends after %s, and --input goes on; %s a part of it with --length", blockdev.FormatSize(done), cp.use.verb)
		}
	}
	return done, nil
}

func (cp *copier) consumeChunk(ctx context.Context, b []byte, at int64) error {
	if block := cp.ns.BlockSize(); len(b)%block != 0 {
		return fmt.Errorf("--input ends after %d bytes, which is not a multiple of the namespace's block, %d bytes", at+int64(len(b)), block)
	}
	if cp.sum != nil {
		cp.sum.Write(b)
	}
	if err := cp.use.send(ctx, cp.ns, b, cp.offset+at); err != nil {
		return err
	}
	cp.bar.add(len(b))
	return nil
}

func summarize(w io.Writer, verb string, n int64, took time.Duration, f *copyFlags) {
	if f.quiet {
		return
	}
	verified := ""
	if f.verify {
		verified = ", verified"
	}
	fmt.Fprintf(w, "%s %s in %.2f s%s\n", verb, blockdev.FormatSize(n), took.Seconds(), verified)
}
