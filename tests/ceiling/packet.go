package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Sizes of RoCEv2 RC packets at path MTU 4096, in bytes of UDP payload.
const (
	mtu          = 4096
	headerSize   = 12 + 16 // BTH and RETH
	crcSize      = 4
	requestSize  = 64
	dataSize     = headerSize + mtu + crcSize
	responseSize = 12 + 4 + 16 + crcSize // BTH, IETH, completion, ICRC
)

var errCRC = errors.New("a datagram arrived with a wrong CRC")

// workload is what a request is answered with and how.
type workload struct {
	packets int // of mtu bytes each
	depth   int
	crc     bool
	copy    bool
	poll    time.Duration // how long both sides look for datagrams before they sleep
}

func (w workload) payload() int { return w.packets * mtu }

// spec and parse carry a workload to the other process.
func (w workload) spec() string {
	return fmt.Sprintf("%d %d %t %t %d", w.packets, w.depth, w.crc, w.copy, w.poll)
}

func parse(spec string) (w workload, err error) {
	_, err = fmt.Sscanf(spec, "%d %d %t %t %d", &w.packets, &w.depth, &w.crc, &w.copy, &w.poll)
	return w, err
}

// config is that of the socket of either side.
func (w workload) config() udp.Config {
	if w.poll == 0 {
		return udp.Config{BusyPoll: udp.NoBusyPoll}
	}
	return udp.Config{BusyPoll: w.poll}
}

func workloads(poll time.Duration) (all []workload) {
	for _, kind := range []struct {
		packets int
		depths  []int
	}{{1, []int{1, 8, 32, 128}}, {32, []int{1, 4, 16}}} {
		for _, depth := range kind.depths {
			for _, full := range []bool{false, true} {
				all = append(all, workload{kind.packets, depth, full, full, poll})
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
func tag(d []byte) int        { return int(binary.BigEndian.Uint32(d)) }
func putTag(d []byte, n int)  { binary.BigEndian.PutUint32(d, uint32(n)) }
func part(d []byte) int       { return int(binary.BigEndian.Uint32(d[4:])) }
func putPart(d []byte, n int) { binary.BigEndian.PutUint32(d[4:], uint32(n)) }
