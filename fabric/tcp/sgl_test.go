package tcp

import (
	"bytes"
	"math"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// wrongSGL is a descriptor of an I/O command of wrongSize bytes, and its status.
type wrongSGL struct {
	name   string
	op     nvme.Opcode // 0: Read and Write
	data   []byte      // in the capsule
	kind   nvme.SGLType
	addr   uint64
	length uint32
	status nvme.Status
}

const wrongSize = 2048

// wrongSGLs are descriptors that NVMe/TCP doesn't define, or that don't match their command's data.
func wrongSGLs() []wrongSGL {
	const (
		both    = 0
		size    = wrongSize
		field   = nvme.StatusInvalidField
		kind    = nvme.StatusSGLTypeInvalid
		offset  = nvme.StatusSGLOffsetInvalid
		length  = nvme.StatusSGLLengthInvalid
		capsule = nvme.SGLInCapsule
	)
	inline := bytes.Repeat([]byte{0xdd}, size)
	return []wrongSGL{
		{"block at an address", both, nil, nvme.SGLDataBlockAddress, 0, size, kind},
		{"block of subtype 2", both, inline, 0x02, 0, size, kind},
		{"bit bucket", both, nil, 0x10, 0, size, kind},
		{"segment", both, inline[:16], 0x21, 0, 16, kind},
		{"last segment", both, inline[:16], 0x31, 0, 16, kind},
		{"keyed", both, nil, nvme.SGLKeyed, 0x1000, size, kind},
		{"keyed, to be invalidated", both, nil, nvme.SGLKeyedInvalidate, 0x1000, size, kind},
		{"transport of subtype 0", both, nil, 0x50, 0, size, kind},
		{"vendor's", both, nil, 0xf0, 0, size, kind},
		{"data in the capsule of a Read", nvme.OpRead, inline, capsule, 0, size, field},
		{"less behind an offset than blocks", nvme.OpWrite, inline, capsule, 4, size - 4, length},
		{"offset, shorter than the capsule", nvme.OpWrite, inline, capsule, 4, size - 8, length},
		{"offset, longer than the capsule", nvme.OpWrite, inline, capsule, 4, size, length},
		{"from the capsule's end", nvme.OpWrite, inline, capsule, size, size, offset},
		{"offset that overflows", nvme.OpWrite, inline, capsule, math.MaxUint64 - 511, size, offset},
		{"no data in the capsule", nvme.OpWrite, nil, capsule, 0, size, length},
		{"longer than the capsule", nvme.OpWrite, inline[:1024], capsule, 0, size, length},
		{"shorter than the capsule", nvme.OpWrite, inline, capsule, 0, 1024, length},
		{"4 GiB in the capsule", nvme.OpWrite, inline, capsule, 0, math.MaxUint32, length},
		{"less in the capsule than blocks", nvme.OpWrite, inline[:1024], capsule, 0, 1024, length},
		{"less than blocks", both, nil, nvme.SGLTransport, 0, 1024, length},
		{"more than blocks", both, nil, nvme.SGLTransport, 0, 2 * size, length},
		{"4 GiB", both, nil, nvme.SGLTransport, 0, math.MaxUint32, length},
		{"nothing", both, nil, nvme.SGLTransport, 0, 0, length},
	}
}

// TestWrongSGL: an I/O command with a descriptor that NVMe/TCP doesn't define, or that doesn't match the
// command's data, fails with the right status. Only that command fails, and nothing is written for it.
func TestWrongSGL(t *testing.T) {
	const size = wrongSize
	tt := newTestTarget(t, TargetConfig{})
	_, io := rawIO(t, tt, netip.Addr{}, 32)
	var cid uint16
	send := func(name string, cmd nvme.Command, alter func(pdu []byte), data []byte, want nvme.Status) {
		t.Helper()
		cid++
		cmd.SetCID(cid)
		sent := io.capsule(cmd, data)
		alter(sent[pdu.HeaderSize:])
		io.send(sent)
		cqe := io.response()
		if got, want := cqe.Status()&^nvme.StatusMore, want|nvme.StatusDNR; got != want || cqe.CID() != cid {
			t.Errorf("%s: status %#x (%v), want %#x (%v)", name, uint16(got), got, uint16(want), want)
		}
	}
	for _, tc := range wrongSGLs() {
		for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite} {
			if tc.op == 0 || tc.op == op {
				cmd := ioCommand(op, 0, size)
				cmd.SGL1().SetBlock(tc.kind, tc.addr, tc.length)
				send(tc.name+" of "+op.IOName(), cmd, func([]byte) {}, tc.data, tc.status)
			}
		}
	}
	for _, psdt := range []byte{0, 0x80, 0xc0} {
		cmd := ioCommand(nvme.OpWrite, 0, size)
		cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
		send("PSDT", cmd, func(sqe []byte) { sqe[1] = psdt }, nil, nvme.StatusInvalidField)
	}
	good := ioCommand(nvme.OpRead, 0, size)
	good.SGL1().SetBlock(nvme.SGLTransport, 0, size)
	io.send(io.capsule(good, nil))
	if data := io.expect(pdu.TypeC2HData)[pdu.DataSize:]; !bytes.Equal(data, make([]byte, size)) {
		t.Error("the volume was written")
	}
	if cqe := io.response(); !cqe.Status().OK() {
		t.Errorf("a good one: %v", cqe.Status())
	}
}

// TestIdentifiedSGLs: Identify Controller reports the descriptors that NVMe/TCP has (SGLS, NVMe base; NVMe/TCP, section
// 3.3.2): the transport data block, and the data block that is an offset into the capsule, for any offset.
func TestIdentifiedSGLs(t *testing.T) {
	const size, skipped = 4096, 512
	tt := newTestTarget(t, TargetConfig{})
	admin, io := rawIO(t, tt, netip.Addr{}, 32)
	admin.send(admin.capsule(identify(1), nil))
	var id nvme.IdentifyController
	if err := id.Parse(admin.expect(pdu.TypeC2HData)[pdu.DataSize:]); err != nil {
		t.Fatal(err)
	}
	if want := nvme.SGLS(1 | 1<<20 | 1<<21); id.SGLS != want {
		t.Errorf("SGLS %#x, want %#x", id.SGLS, want)
	}
	data := randomBytes(5, skipped+size)
	write := ioCommand(nvme.OpWrite, 0, size)
	write.SGL1().SetBlock(nvme.SGLInCapsule, skipped, size)
	io.send(io.capsule(write, data))
	if cqe := io.response(); !cqe.Status().OK() {
		t.Fatalf("a write from an offset in its capsule: %v", cqe.Status())
	}
	read := ioCommand(nvme.OpRead, 0, size)
	read.SGL1().SetBlock(nvme.SGLTransport, 0, size)
	io.send(io.capsule(read, nil))
	if got := io.expect(pdu.TypeC2HData)[pdu.DataSize:]; !bytes.Equal(got, data[skipped:]) {
		t.Error("what was written isn't what the descriptor names")
	}
	io.response()
}
