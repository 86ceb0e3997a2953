package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// client is a client at a loopback address, which keeps its connection open.
func client(addr string) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		return d.DialContext(ctx, network, to)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}

// healthy reports whether a server answers a client.
func healthy(t *testing.T, c *http.Client, srv *Server) bool {
	t.Helper()
	t.Cleanup(c.CloseIdleConnections)
	r, err := c.Get("http://" + srv.Addr().String() + "/healthz")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil && r.StatusCode == http.StatusOK
}

// TestAcceptFails: a server answers on when the system couldn't accept a connection, for lack of something that isn't
// descriptors, or because that connection had failed by then.
func TestAcceptFails(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EPROTO} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			srv, err := New().Serve("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			failed := sandbox.FailOnce(t, unix.SYS_ACCEPT4, errno)
			for range 2 {
				if !healthy(t, client("127.0.0.2"), srv) || !failed() {
					t.Errorf("no answer; a call had failed: %v", failed())
				}
			}
		})
	}
}

// TestIdleClients: clients that keep connections open don't use up the program's descriptors. One address may have all
// places until another needs one, and a connection that ends leaves its place to the next.
func TestIdleClients(t *testing.T) {
	const many, other = "127.0.0.2", "127.0.0.3"
	srv, err := New().Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	for i := range maxConns {
		if !healthy(t, client(many), srv) {
			t.Fatalf("connection %d of %d gets no answer", i+1, maxConns)
		}
	}
	if healthy(t, client(many), srv) {
		t.Errorf("one address has more than %d connections", maxConns)
	}
	c := client(other)
	if !healthy(t, c, srv) {
		t.Error("another address gets no answer")
	}
	if healthy(t, client(many), srv) {
		t.Error("the place of another address was taken")
	}
	c.CloseIdleConnections()
	if !soon.Until(func() bool { return healthy(t, client(many), srv) }) {
		t.Error("a connection that ended has left no place")
	}
}
