package capture

import (
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// tshark runs Wireshark's command line on a file and returns its lines.
func tshark(t *testing.T, path string, args ...string) []string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	out, err := exec.Command(program, append([]string{"-n", "-r", path}, args...)...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestWireshark has Wireshark read a file with both transports in it.
func TestWireshark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "both.pcapng")
	f, err := Create(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	n := simnet.New(1)
	frames := readRoCE(t, filepath.Join(ofLinux, "rdma-01-discover.pcap"))
	ends := map[netip.AddrPort]udp.Conn{}
	for _, frame := range frames {
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[26:30])), wire.Port)
		if ends[src] == nil {
			ends[src] = f.Conn(endpoint(t, n, src.String(), simnet.Config{}))
		}
		payload := frame[42:]
		if _, err := ends[src].Send([]udp.Train{{
			Dst:   netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[30:34])), wire.Port),
			Parts: [][]byte{payload}, Bytes: len(payload), SegmentSize: len(payload),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	six := endpoint(t, n, "[2001:db8::1]:4791", simnet.Config{})
	if _, err := f.Conn(six).Send([]udp.Train{
		roceTrain(six.LocalAddr(), netip.MustParseAddrPort("[2001:db8::2]:4791"), 3, 256),
	}); err != nil {
		t.Fatal(err)
	}
	s := f.Stream(netip.MustParseAddrPort("192.0.2.1:50000"), netip.MustParseAddrPort("192.0.2.2:4420"), true)
	icReq := make([]byte, 128) // NVMe/TCP ICReq: type 0, header of 128 bytes
	icReq[2], icReq[4] = 128, 128
	s.Sent([][]byte{icReq})
	s.Close()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	lines := tshark(t, path, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE",
		"-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed", "-e", "_ws.expert.message",
		"-e", "tcp.analysis.flags")
	if want := len(frames) + 3 + 7; len(lines) != want {
		t.Fatalf("%d frames, want %d", len(lines), want)
	}
	kinds := map[string]int{}
	for i, line := range lines {
		fields := strings.Split(line, "\t")
		protocols := strings.Split(fields[0], ":")
		for _, p := range []string{"infiniband", "nvme-tcp", "tcp", "ipv6"} {
			if slices.Contains(protocols, p) {
				kinds[p]++
			}
		}
		if fields[1] != "" || strings.Contains(strings.ToLower(fields[2]), "checksum") || fields[3] != "" {
			t.Errorf("frame %d: %s", i+1, line)
		}
	}
	if kinds["infiniband"] != len(frames)+3 || kinds["ipv6"] != 3 || kinds["tcp"] != 7 || kinds["nvme-tcp"] != 1 {
		t.Errorf("Wireshark sees %v", kinds)
	}
}

// TestPortsReused: Wireshark tells a connection from an earlier one with the same addresses.
func TestPortsReused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reused.pcapng")
	f, err := Create(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	const each = 3 + 1 + 3 // handshake, data, end
	for range 2 {
		s := f.Stream(netip.MustParseAddrPort("192.0.2.1:50000"), netip.MustParseAddrPort("192.0.2.2:4420"), true)
		s.Sent([][]byte{[]byte("hello")})
		s.Close()
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	lines := tshark(t, path, "-T", "fields", "-e", "tcp.stream", "-e", "tcp.analysis.flags", "-e", "tcp.analysis.reused_ports")
	if len(lines) != 2*each {
		t.Fatalf("%d frames, want %d", len(lines), 2*each)
	}
	for i, line := range lines {
		fields := strings.Split(line, "\t")
		reused := fields[2] != ""
		if fields[0] != strconv.Itoa(i/each) || fields[1] != "" && !reused || reused != (i == each) {
			t.Errorf("frame %d: %q", i+1, fields)
		}
	}
}
