package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Both sides describe their queue pairs to each other in a line of text that ends in a zero
// byte: LID (0 on Ethernet), queue pair number, first PSN and GID, all in hexadecimal. The
// client begins, and sends "done", with a zero byte, once it is connected.

const (
	lineSize = len("0000:000000:000000:00000000000000000000000000000000") + 1
	done     = "done\x00"
)

// introduce is the client's part.
func introduce(conn io.ReadWriter, self rc.Peer, connect func(rc.Peer) error) (rc.Peer, error) {
	if _, err := conn.Write(line(self)); err != nil {
		return rc.Peer{}, fmt.Errorf("tell the server of our queue pair: %w", err)
	}
	peer, err := readLine(conn)
	if err != nil {
		return peer, err
	}
	if err := connect(peer); err != nil {
		return peer, err
	}
	_, err = conn.Write([]byte(done))
	return peer, err
}

// answer is the server's part. It connects before it answers, since the client may send as soon
// as it has the answer.
func answer(conn io.ReadWriter, self rc.Peer, connect func(rc.Peer) error) (rc.Peer, error) {
	peer, err := readLine(conn)
	if err != nil {
		return peer, err
	}
	if err := connect(peer); err != nil {
		return peer, err
	}
	if _, err := conn.Write(line(self)); err != nil {
		return peer, fmt.Errorf("tell the client of our queue pair: %w", err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(done))); err != nil {
		return peer, fmt.Errorf("the client did not connect its queue pair: %w", err)
	}
	return peer, nil
}

func line(p rc.Peer) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", 0, p.QPN, p.PSN, p.GID[:])
}

func readLine(r io.Reader) (rc.Peer, error) {
	var b [lineSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return rc.Peer{}, fmt.Errorf("the other side's queue pair: %w", err)
	}
	return parseLine(b[:])
}

func parseLine(b []byte) (p rc.Peer, err error) {
	var lid uint16
	var gid []byte
	if _, err := fmt.Sscanf(string(b), "%04x:%06x:%06x:%x", &lid, &p.QPN, &p.PSN, &gid); err != nil {
		return p, fmt.Errorf("the other side's queue pair %q: %w", b, err)
	}
	if copy(p.GID[:], gid) != len(p.GID) || len(gid) != len(p.GID) {
		return p, fmt.Errorf("the other side's GID %s: want %d bytes", hex.EncodeToString(gid), len(p.GID))
	}
	if p.GID == (verbs.GID{}) {
		return p, errors.New("the other side gives no GID: start ibv_rc_pingpong with -g and the index of its IP address")
	}
	return p, nil
}
