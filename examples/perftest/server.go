package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// before is what memory is filled with until somebody writes there.
const before = 0xa5

// receiveAll posts all receives of a server.
func (t *test) receiveAll() error {
	if t.wire.client {
		return nil
	}
	for i := range t.depth {
		if err := t.receive(i); err != nil {
			return err
		}
	}
	return nil
}

// receive posts the receive of message i.
func (t *test) receive(i int) error {
	return rc.Recv(t.qp, verbs.RecvWR{WRID: uint64(i), SGList: t.SGE(i%t.depth*t.size, t.size)})
}

// serve lets the client run its operations, and checks the result.
func (t *test) serve(ctx context.Context, out io.Writer) error {
	if t.op.opcode == verbs.WRSend {
		return t.serveSends(ctx, out)
	}
	// The RNIC serves one-sided operations by itself.
	if _, err := t.wire.swapKeys("word of the last operation", t.mine); err != nil {
		return err
	}
	r, err := t.wire.swapReport(report{})
	if err != nil {
		return err
	}
	// From here on nobody changes the memory.
	if err := t.qp.Modify(verbs.QPAttr{State: verbs.Err}); err != nil {
		return err
	}
	verdict, err := t.inspect(int(r.count))
	if err != nil {
		return err
	}
	if err := t.wire.finish(t.mine); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: the client did %d of %d bytes, %.1f MiB/s; %s\n", t.op.name, r.count, r.size, r.average, verdict)
	return nil
}

// inspect checks the memory after count operations, and describes the result.
func (t *test) inspect(count int) (string, error) {
	target := t.Buf[t.target():][:t.targetSize()]
	for _, guard := range [][]byte{t.Buf[:page], t.Buf[len(t.Buf)-page:]} {
		if changed(guard) > 0 {
			return "", errors.New("memory beside the one that was shown has changed")
		}
	}
	switch t.op.opcode {
	case verbs.WRRDMAWrite:
		// Only the client knows the data; one in 256 random bytes wouldn't be noticed.
		if n := changed(target[:t.size]); n < t.size/2 {
			return "", fmt.Errorf("only %d of %d bytes were written", n, t.size)
		}
		return "written where it should, and nowhere else", nil
	case verbs.WRAtomicFetchAndAdd:
		if n := t.added(target); n != uint64(count) {
			return "", fmt.Errorf("the sums grew by %d in %d operations", n, count)
		}
		return "the sums have grown by as many", nil
	case verbs.WRAtomicCmpAndSwp:
		// perftest's client swaps 0 for 0, and there is no 0; ours counts up the first word.
		if n := t.added(target[:wordSize]); n != 0 && n != uint64(count) || changed(target[wordSize:]) > 0 {
			return "", errors.New("memory has changed where nothing should have been swapped")
		}
		return "only what compared equal was swapped", nil
	}
	if changed(target) > 0 {
		return "", errors.New("memory that was only to be read has changed")
	}
	return "the memory is as it was", nil
}

// changed returns how many bytes somebody wrote.
func changed(b []byte) int { return len(b) - bytes.Count(b, []byte{before}) }

// added returns by how much the words in b have grown in total.
func (t *test) added(b []byte) (sum uint64) {
	old := binary.NativeEndian.Uint64(bytes.Repeat([]byte{before}, wordSize))
	for i := 0; i+wordSize <= len(b); i += wordSize {
		sum += binary.NativeEndian.Uint64(b[i:]) - old
	}
	return sum
}

// errFinished ends receiving.
var errFinished = errors.New("the client has finished")

// serveSends receives until the client says that it has finished, which it does once all of its
// messages are acknowledged. Messages from the same place in its memory must be the same.
func (t *test) serveSends(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := t.wire.finish(t.mine)
		cancel(errFinished)
		ended <- err
	}()
	n := 0
	first := map[int][]byte{}
	for {
		wc, err := t.Next(ctx)
		if errors.Is(err, errFinished) {
			break
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		got := t.slot(int(wc.WRID) % t.depth)
		switch place := n % t.cycle; {
		case int(wc.ByteLen) != t.size:
			return fmt.Errorf("message %d has %d bytes, not %d", n, wc.ByteLen, t.size)
		case n < t.cycle:
			first[place] = bytes.Clone(got)
		case !bytes.Equal(got, first[place]):
			return fmt.Errorf("message %d is another than message %d, from the same place", n, place)
		}
		n++
		clear(got)
		if err := t.receive(int(wc.WRID) + t.depth); err != nil {
			return err
		}
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("after %d messages: %w", n, err)
	}
	fmt.Fprintf(out, "%s: %d of %d bytes received; those from the same place were the same\n", t.op.name, n, t.size)
	return nil
}
