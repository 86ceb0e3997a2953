package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Sizes of the software RNIC's packets on loopback, in bytes of UDP payload. Data of a single packet includes the
// response, data of several is followed by a packet with it.
const (
	longest      = 60 << 10 // data of a packet
	maxData      = 1 << 20  // of an answer
	headerSize   = 12 + 16  // BTH and RETH
	crcSize      = 4
	requestSize  = 64
	messageSize  = 4 + 16 // IETH and completion
	responseSize = 12 + messageSize + crcSize
)

var errCRC = errors.New("a datagram arrived with a wrong CRC")

// workload says what a request is answered with and how.
type workload struct {
	data   int // bytes
	depth  int
	crc    bool
	copy   bool
	random bool          // whether the data is at random places of the volume
	poll   time.Duration // how long both sides poll for datagrams before they sleep
}

// packets returns how many packets the data takes.
func (w workload) packets() int { return (w.data + longest - 1) / longest }

// part returns how many bytes of the data packet i has.
func (w workload) part(i int) int { return min(longest, w.data-i*longest) }

// along reports whether the response is in the packet of the data.
func (w workload) along() bool { return w.packets() == 1 }

// spec and parse carry a workload to the other process.
func (w workload) spec() string {
	return fmt.Sprintf("%d %d %t %t %t %d", w.data, w.depth, w.crc, w.copy, w.random, w.poll)
}

func parse(spec string) (w workload, err error) {
	_, err = fmt.Sscanf(spec, "%d %d %t %t %t %d", &w.data, &w.depth, &w.crc, &w.copy, &w.random, &w.poll)
	return w, err
}

// config returns the configuration of either side's socket.
func (w workload) config() udp.Config {
	if w.poll == 0 {
		return udp.Config{BusyPoll: udp.NoBusyPoll}
	}
	return udp.Config{BusyPoll: w.poll}
}

func workloads(random bool, poll time.Duration) (all []workload) {
	for _, kind := range []struct {
		data   int
		depths []int
	}{{4 << 10, []int{1, 8, 32, 128}}, {128 << 10, []int{1, 4, 16}}} {
		for _, depth := range kind.depths {
			for _, full := range []bool{false, true} {
				all = append(all, workload{kind.data, depth, full, full, random, poll})
			}
		}
	}
	return all
}

// seal puts the CRC of the parts into the last four bytes.
func (w workload) seal(crc []byte, parts ...[]byte) {
	if !w.crc {
		return
	}
	sum := uint32(0)
	for _, p := range parts {
		sum = crc32.Update(sum, crc32.IEEETable, p)
	}
	binary.LittleEndian.PutUint32(crc, sum)
}

// check compares the CRC of a datagram.
func (w workload) check(d []byte) error {
	n := len(d) - crcSize
	if w.crc && crc32.ChecksumIEEE(d[:n]) != binary.LittleEndian.Uint32(d[n:]) {
		return errCRC
	}
	return nil
}

// Both sides number requests by a tag in the first bytes; data also has its packet's number.
func tag(d []byte) int         { return int(binary.BigEndian.Uint32(d)) }
func putTag(d []byte, n int)   { binary.BigEndian.PutUint32(d, uint32(n)) }
func index(d []byte) int       { return int(binary.BigEndian.Uint32(d[4:])) }
func putIndex(d []byte, n int) { binary.BigEndian.PutUint32(d[4:], uint32(n)) }
