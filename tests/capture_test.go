package tests

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// frame is tshark's view of a packet of a capture.
type frame struct {
	number    int
	info      string   // the text that Wireshark's list shows
	protocols []string // from the outside in, each once
	cm        int      // attribute of a communication management MAD, 0 without one
	tid       string   // its transaction
	opcode    int      // of the BTH, -1 without one
	digests   []string // status of each NVMe/TCP digest
}

func (f *frame) has(protocol string) bool { return slices.Contains(f.protocols, protocol) }

// Attributes of communication management MADs (IBTA 12.6).
const (
	cmREQ  = 0x10
	cmREJ  = 0x12
	cmREP  = 0x13
	cmRTU  = 0x14
	cmDREQ = 0x15
	cmDREP = 0x16
)

// What tshark's fields say.
const (
	rcAcknowledge = 0x11       // BTH opcode
	expertWarning = 0x00600000 // severity; what is below is a remark on how TCP works
	digestGood    = "1"
)

// tshark runs it on a capture, with every check that it has, and returns its lines.
func tshark(t *testing.T, path string, args ...string) []string {
	t.Helper()
	args = append([]string{"-n", "-r", path,
		"-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE",
		"-o", "nvme-tcp.check_hdgst:TRUE", "-o", "nvme-tcp.check_ddgst:TRUE"}, args...)
	var stderr strings.Builder
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// dissect decodes a capture and fails the test for every frame that tshark has a complaint
// about: malformed, not reassembled, a wrong checksum, anything unexpected.
func dissect(t *testing.T, path string) []frame {
	t.Helper()
	fields := []string{
		"frame.protocols", "infiniband.mad.attributeid", "infiniband.mad.transactionid", "infiniband.bth.opcode", "nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status",
		"_ws.malformed", "_ws.unreassembled", "tcp.analysis.flags", "_ws.expert.severity", "_ws.expert.message",
	}
	const firstComplaint = 6
	args := []string{"-T", "fields", "-E", "separator=/t", "-E", "aggregator=|"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	infos := tshark(t, path, "-o", `gui.column.format:"Info","%i"`)
	rows := tshark(t, path, args...)
	if len(infos) != len(rows) {
		t.Fatalf("%s: %d texts for %d frames", filepath.Base(path), len(infos), len(rows))
	}
	var frames []frame
	for i, row := range rows {
		v := strings.Split(row, "\t")
		f := frame{number: i + 1, info: infos[i], opcode: -1}
		for p := range strings.SplitSeq(v[0], ":") {
			if !f.has(p) {
				f.protocols = append(f.protocols, p)
			}
		}
		f.cm = number(v[1], 0)
		f.tid = v[2]
		f.opcode = number(v[3], -1)
		for _, d := range v[4:firstComplaint] {
			f.digests = append(f.digests, strings.FieldsFunc(d, func(r rune) bool { return r == '|' })...)
		}
		if strings.Contains(f.info, "[TCP Port numbers reused]") { // as the kernel may do
			v[firstComplaint+2] = ""
		}
		complaints := strings.Join(v[firstComplaint:firstComplaint+3], "")
		warned := slices.ContainsFunc(strings.Split(v[firstComplaint+3], "|"), func(s string) bool { return number(s, 0) >= expertWarning })
		if complaints != "" || warned || strings.Contains(f.info, "Malformed") || strings.Contains(named.Replace(f.info), "Unknown") {
			t.Errorf("%s, frame %d: %q: %s", filepath.Base(path), f.number, f.info, strings.Join(v[firstComplaint:], ", "))
		}
		frames = append(frames, f)
	}
	return frames
}

// named removes what tshark 4.0 adds where it has no name, also in captures of Linux: Identify with the CNS values of
// NVMe 2.0.
var named = strings.NewReplacer("Identify Unknown", "Identify")

func number(s string, missing int) int {
	n, err := strconv.ParseInt(s, 0, 32)
	if err != nil {
		return missing
	}
	return int(n)
}

// checkFrames makes sure that every frame was recognised to its innermost protocol.
func checkFrames(t *testing.T, path string, frames []frame) {
	t.Helper()
	for i := range frames {
		f := &frames[i]
		switch {
		case f.has("udp"):
			inner := f.has("nvme-rdma") || f.opcode == rcAcknowledge || f.cm != 0
			if !f.has("infiniband") || !inner || f.has("data") {
				t.Errorf("%s, frame %d is not NVMe/RDMA to Wireshark: %v %s", filepath.Base(path), f.number, f.protocols, f.info)
			}
		case f.has("tcp"):
			handshake := strings.Contains(f.info, "[SYN") || strings.Contains(f.info, "[ACK]") || strings.Contains(f.info, "[FIN")
			if !f.has("nvme-tcp") && !handshake && !f.has("tcp.segments") && !strings.Contains(f.info, "TCP segment of a reassembled PDU") {
				t.Errorf("%s, frame %d is not NVMe/TCP to Wireshark: %v %s", filepath.Base(path), f.number, f.protocols, f.info)
			}
		default:
			t.Errorf("%s, frame %d is neither UDP nor TCP: %v", filepath.Base(path), f.number, f.protocols)
		}
	}
}

// checkCM counts the messages of the given number of connections, made and ended in order; one that was retransmitted
// on a busy machine counts once. Both ends may disconnect at the same time, which gives a second DREQ with its DREP.
func checkCM(t *testing.T, path string, frames []frame, connections int) {
	t.Helper()
	type message struct {
		cm  int
		tid string
	}
	seen, n := map[message]bool{}, map[int]int{}
	for _, f := range frames {
		if m := (message{f.cm, f.tid}); f.cm != 0 && !seen[m] {
			seen[m] = true
			n[f.cm]++
		}
	}
	if n[cmREQ] != connections || n[cmREP] != connections || n[cmRTU] != connections {
		t.Errorf("%s: %d REQ, %d REP, %d RTU, want %d of each", filepath.Base(path), n[cmREQ], n[cmREP], n[cmRTU], connections)
	}
	if n[cmREJ] != 0 || n[cmDREQ] < connections || n[cmDREQ] > 2*connections || n[cmDREP] < connections {
		t.Errorf("%s: %d REJ, %d DREQ, %d DREP of %d connections", filepath.Base(path), n[cmREJ], n[cmDREQ], n[cmDREP], connections)
	}
}

// checkNames makes sure that tshark names these commands, and a completion for each.
func checkNames(t *testing.T, path string, frames []frame, commands ...string) {
	t.Helper()
	for _, c := range commands {
		layer, name, _ := strings.Cut(c, " ")
		for _, text := range []string{c, layer + " CQE for " + name} {
			if !slices.ContainsFunc(frames, func(f frame) bool { return strings.Contains(f.info, text) }) {
				t.Errorf("%s: Wireshark names no %q", filepath.Base(path), text)
			}
		}
	}
}

// checkDigests makes sure that every digest is right, and that there are some exactly if asked.
func checkDigests(t *testing.T, path string, frames []frame, asked bool) {
	t.Helper()
	good := 0
	for _, f := range frames {
		for _, d := range f.digests {
			switch {
			case d == digestGood:
				good++
			case asked:
				t.Errorf("%s, frame %d: digest status %s: %s", filepath.Base(path), f.number, d, f.info)
			}
		}
	}
	if (good > 0) != asked {
		t.Errorf("%s: %d digests", filepath.Base(path), good)
	}
}

// checkICRC verifies the ICRC of every RoCEv2 packet in a capture with our own codec, with
// the Identification that the capture has, and returns how many there were.
func checkICRC(t *testing.T, path string) int {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for n, checked := 1, 0; ; n++ {
		b, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return checked
		}
		if err != nil {
			t.Fatalf("%s, frame %d: %v", filepath.Base(path), n, err)
		}
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy)
		u, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok {
			continue
		}
		ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		flow := wire.NewFlow(addrPort(ip.SrcIP, uint16(u.SrcPort)), addrPort(ip.DstIP, uint16(u.DstPort)))
		if verdict, _ := flow.Verify(u.Payload, ip.Id); verdict != wire.Exact {
			t.Errorf("%s, frame %d: ICRC: %v", filepath.Base(path), n, verdict)
		}
		var parsed wire.Packet
		if err := wire.Parse(&parsed, u.Payload); err != nil {
			t.Errorf("%s, frame %d: %v", filepath.Base(path), n, err)
		}
		checked++
	}
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, port)
}

// captured is a run of nvmeinit, what its capture must show, and how many connections it makes.
type captured struct {
	verb        string
	args        []string
	connections int
	commands    []string
}

// What a connection that discovers its subsystem does.
var (
	setUpCommands    = []string{"NVMeOF Connect", "NVMeOF Property Get Controller Capabilities", "NVMe Identify Controller"}
	discoverCommands = append([]string{"NVMe Get Log Page NVMeOF Discovery"}, setUpCommands...)
	ioCommands       = append([]string{"NVMe Identify Namespace", "NVMe Set Features"}, setUpCommands...)
)

// A run of every command over every kind of connection, captured by both programs, is NVMe over Fabrics to Wireshark's
// dissectors, to the last frame.
func TestCapture(t *testing.T) {
	t.Parallel()
	installed(t, "tshark")
	dir := t.TempDir()
	in := makeFile(t, filepath.Join(dir, "in"), 300<<10)
	two := []string{"-n", testNQN, "-i", "2"}
	runs := []captured{
		{"discover", nil, 1, discoverCommands},
		{"connect", two, 3, ioCommands},
		{"write", append([]string{"--input", in}, two...), 3, append([]string{"NVMe Write", "NVMe Flush"}, ioCommands...)},
		{"read", append([]string{"--length", "300k", "--output", "/dev/null"}, two...), 3, append([]string{"NVMe Read"}, ioCommands...)},
		{"flush", []string{"-n", testNQN}, 2, append([]string{"NVMe Flush"}, ioCommands...)},
		{"bench", append([]string{"--rw", "randrw", "--iodepth", "8", "--size", "512k"}, two...), 3, append([]string{"NVMe Read", "NVMe Write"}, ioCommands...)},
	}
	for _, kind := range []struct {
		name, transport string
		flags           []string
	}{
		{"rdma", "rdma", nil},
		{"rdma-plain", "rdma", []string{"--plain-udp"}},
		{"tcp", "tcp", nil},
		{"tcp-digests", "tcp", []string{"-g", "-G"}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			ofTarget := filepath.Join(dir, kind.name+"-target.pcapng")
			args := []string{"--volume", "mem:16MiB", "--pcap", ofTarget}
			if kind.transport == "rdma" {
				args = append(args, kind.flags...)
			}
			tgt := startTarget(t, args...)
			connections := 0
			var commands []string
			for _, run := range runs {
				path := filepath.Join(dir, kind.name+"-"+run.verb+".pcapng")
				flags := append(append([]string{"--pcap", path}, kind.flags...), run.args...)
				tgt.must(t, time.Minute, kind.transport, run.verb, flags...)
				examine(t, path, kind.transport, len(kind.flags) > 0, run.connections, run.commands)
				connections += run.connections
				commands = append(commands, run.commands...)
			}
			tgt.stop(t)
			examine(t, ofTarget, kind.transport, len(kind.flags) > 0, connections, commands)
		})
	}
}

// examine checks one capture.
func examine(t *testing.T, path, transport string, flags bool, connections int, commands []string) {
	t.Helper()
	frames := dissect(t, path)
	checkFrames(t, path, frames)
	checkNames(t, path, frames, commands...)
	if transport == "rdma" {
		checkCM(t, path, frames, connections)
		if n := checkICRC(t, path); n != len(frames) {
			t.Errorf("%s: %d RoCEv2 packets in %d frames", filepath.Base(path), n, len(frames))
		}
		return
	}
	checkDigests(t, path, frames, flags)
	opened := 0
	for _, f := range frames {
		if strings.Contains(f.info, "[SYN]") {
			opened++
		}
	}
	if opened != connections {
		t.Errorf("%s: %d TCP connections, want %d", filepath.Base(path), opened, connections)
	}
}

// Both transports of a target are captured in one file.
func TestCaptureBothTransports(t *testing.T) {
	t.Parallel()
	installed(t, "tshark")
	path := filepath.Join(t.TempDir(), "both.pcapng")
	tgt := startTarget(t, "--volume", "mem:16MiB", "--pcap", path)
	for _, transport := range transports {
		tgt.must(t, time.Minute, transport, "read", "-n", testNQN, "--length", "64k", "--output", "/dev/null")
	}
	tgt.stop(t)
	frames := dissect(t, path)
	checkFrames(t, path, frames)
	count := map[string]int{}
	for _, f := range frames {
		for _, p := range []string{"infiniband", "nvme-rdma", "nvme-tcp"} {
			if f.has(p) {
				count[p]++
			}
		}
	}
	for _, p := range []string{"infiniband", "nvme-rdma", "nvme-tcp"} {
		if count[p] == 0 {
			t.Errorf("no frame has %s: %v", p, fmt.Sprint(count))
		}
	}
}

// TestCaptureFull: if the capture can't be written any more, the target goes on, says so at once, and in its exit
// status.
func TestCaptureFull(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:1MiB", "--pcap", "/dev/full")
	waitText(t, &tgt.stderr, "write /dev/full: no space left on device")
	for _, transport := range transports {
		tgt.must(t, cliTimeout, transport, "read", "--nsid", "1", "--output", "/dev/null")
	}
	tgt.signal(syscall.SIGTERM)
	if code := tgt.wait(t, cliTimeout); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
}
