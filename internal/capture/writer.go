package capture

import (
	"bufio"
	"io"
	"runtime"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// writeBuffer is how many bytes are collected before they are written to the file.
const writeBuffer = 256 << 10

// writer makes frames from records. It belongs to one goroutine.
type writer struct {
	buf   *bufio.Writer
	ng    *pcapgo.NgWriter
	frame []byte
	count uint64
}

func newWriter(w io.Writer, application string) (*writer, error) {
	buf := bufio.NewWriterSize(w, writeBuffer)
	ng, err := pcapgo.NewNgWriterInterface(buf, pcapgo.NgInterface{
		Name:        "nvmeof",
		Description: "socket calls of the program; the headers below RoCEv2 and TCP are made up",
		OS:          runtime.GOOS,
		LinkType:    layers.LinkTypeEthernet,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
		Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: application,
	}})
	if err != nil {
		return nil, err
	}
	return &writer{buf: buf, ng: ng}, nil
}

// batch writes the frames of all records of b.
func (w *writer) batch(b *batch) error {
	data := b.data
	for i := range b.records {
		r := &b.records[i]
		if err := w.record(r, data[:r.size]); err != nil {
			return err
		}
		data = data[r.size:]
	}
	return nil
}

func (w *writer) record(r *record, data []byte) error {
	switch r.kind {
	case udpSent, udpReceived:
		return w.datagrams(r, data)
	case tcpOpened:
		return r.stream.open(w, r.when)
	case tcpClosed:
		return r.stream.end(w, r.when)
	default:
		return r.stream.segments(w, r, data)
	}
}

// datagrams splits a train.
func (w *writer) datagrams(r *record, data []byte) error {
	f := flow{src: r.src, dst: r.dst, class: r.class}
	icrc := wire.NewFlow(r.src, r.dst)
	for i := uint16(0); ; i++ {
		d := data
		if r.segment > 0 && len(d) > r.segment {
			d = d[:r.segment]
		}
		data = data[len(d):]
		id := i
		if r.kind == udpReceived {
			_, id = icrc.Verify(d, i)
		}
		w.frame = f.appendUDP(w.frame[:0], id, d)
		if err := w.write(r.when); err != nil {
			return err
		}
		if len(data) == 0 {
			return nil
		}
	}
}

// write appends w.frame to the file.
func (w *writer) write(when time.Time) error {
	w.count++
	return w.ng.WritePacket(gopacket.CaptureInfo{
		Timestamp: when, CaptureLength: len(w.frame), Length: len(w.frame),
	}, w.frame)
}

// flush writes everything to the file, so that a reader has it, and it survives a crash of the
// program.
func (w *writer) flush() error {
	if err := w.ng.Flush(); err != nil {
		return err
	}
	return w.buf.Flush()
}

// finish writes the statistics.
func (w *writer) finish(start time.Time, dropped uint64) error {
	now := time.Now()
	if err := w.ng.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate: now, StartTime: start, EndTime: now,
		PacketsReceived: w.count + dropped, PacketsDropped: dropped,
	}); err != nil {
		return err
	}
	return w.flush()
}
