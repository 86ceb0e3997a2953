package main

import (
	"fmt"
	"io"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
)

// sharing tells a user who asked for shared memory (--local-memory) if nothing went through it, as that is slower and
// otherwise looks the same.
type sharing struct {
	began  time.Time
	stderr io.Writer
	rnics  []*softrnic.RNIC
}

// Two programs that can share memory have found each other after this time, and long before this many bytes.
const (
	sharingTime  = time.Second
	sharingBytes = 1 << 20
)

func (s *sharing) add(nic *softrnic.RNIC) { s.rnics = append(s.rnics, nic) }

// tell is called at the end.
func (s *sharing) tell() {
	if time.Since(s.began) < sharingTime {
		return
	}
	var all, shared uint64
	for _, nic := range s.rnics {
		c := nic.SocketStats()
		all += c.RxBytes + c.TxBytes
		shared += c.RxShared + c.TxShared
	}
	if all >= sharingBytes && shared == 0 {
		fmt.Fprintln(s.stderr, "--local-memory: nothing went through shared memory; the target must run on this host, as this user, and have --local-memory too")
	}
}
