package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
)

// vmlinux returns the ELF kernel inside a bzImage (Linux x86 boot protocol 2.08 and later).
// QEMU boots it by its PVH entry; the kernel's own decompression takes seconds when the
// processor is emulated.
func vmlinux(ctx context.Context, bzImage []byte) ([]byte, error) {
	const setupSects, payloadOffset, payloadLength = 0x1f1, 0x248, 0x24c
	if len(bzImage) < payloadLength+4 || string(bzImage[0x202:0x206]) != "HdrS" {
		return nil, errors.New("lab: the kernel is no bzImage")
	}
	sectors := cmp.Or(int(bzImage[setupSects]), 4)
	off := (sectors+1)*512 + int(binary.LittleEndian.Uint32(bzImage[payloadOffset:]))
	end := off + int(binary.LittleEndian.Uint32(bzImage[payloadLength:]))
	if off+4 > end || end > len(bzImage) {
		return nil, errors.New("lab: the kernel's payload lies outside it")
	}
	payload := bzImage[off : end-4] // the last four bytes are its length, for decompressors
	elf, err := decompress(ctx, payload)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(elf, []byte("\x7fELF")) {
		return nil, errors.New("lab: the kernel's payload is no ELF file")
	}
	return elf, nil
}

// decompress undoes xz, zstd and gzip, and returns other data as it is.
func decompress(ctx context.Context, b []byte) ([]byte, error) {
	var name string
	switch {
	case bytes.HasPrefix(b, []byte("\xfd7zXZ")):
		name = "xz"
	case bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")):
		name = "zstd"
	case bytes.HasPrefix(b, []byte("\x1f\x8b")):
		name = "gzip"
	default:
		return b, nil
	}
	cmd := exec.CommandContext(ctx, name, "-dc")
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("lab: %s: %w", name, err)
	}
	return out, nil
}
