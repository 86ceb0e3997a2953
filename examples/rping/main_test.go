package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rctest"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// role returns the program with arguments.
func role(t *testing.T, args ...string) rctest.Role {
	t.Helper()
	return rctest.RoleOf(t, parse, run, args...)
}

func TestPing(t *testing.T) {
	for _, args := range [][]string{nil, {"-size", "65535", "-count", "20"}, {"-size", "23", "-count", "1"}} {
		addr := rctest.Addr(t)
		server, client, e1, e2 := rctest.Run(t.Context(), role(t, "-bind", addr), role(t, append(args, addr)...))
		if e1 != nil || e2 != nil {
			t.Fatalf("%v: server %v, client %v", args, e1, e2)
		}
		for _, out := range []string{server, client} {
			if !strings.Contains(out, "pings, all verified") {
				t.Errorf("%v: %s", args, out)
			}
		}
	}
}

func TestNoServer(t *testing.T) {
	addr := rctest.Addr(t)
	_, _, _, err := rctest.Run(t.Context(), role(t, "-bind", addr), role(t, "-port", "7175", addr))
	if err == nil || !strings.Contains(err.Error(), "no server listens at this port") {
		t.Errorf("client: %v", err)
	}
}

// The bytes are those that rping's client (rdma-core 44.0) sent over rdma_rxe.
func TestInfo(t *testing.T) {
	want := info{addr: 0x000055b7eccf1840, rkey: 0x26a2, size: 100}
	golden := []byte{0, 0, 0x55, 0xb7, 0xec, 0xcf, 0x18, 0x40, 0, 0, 0x26, 0xa2, 0, 0, 0, 0x64}
	if got, err := parseInfo(golden); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got := want.append(nil); !bytes.Equal(got, golden) {
		t.Errorf("% x", got)
	}
	for n := range 2 * infoSize {
		if _, err := parseInfo(make([]byte, n)); (err == nil) != (n == infoSize) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func FuzzInfo(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(make([]byte, infoSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := parseInfo(b); err == nil && !bytes.Equal(i.append(nil), b) {
			t.Errorf("% x becomes % x", b, i.append(nil))
		}
	})
}

func TestCheckPing(t *testing.T) {
	b := make([]byte, 64)
	makePing(b, 57)
	// As made by rping: the text, then letters from the 57th on, to z, and again from A.
	if want := "rdma-ping-57: z" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnop" + "\x00"; string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
	for i := range b {
		b[i] ^= 0x20
		if err := checkPing(b, 57); err == nil {
			t.Errorf("damage at byte %d is not seen", i)
		}
		b[i] ^= 0x20
	}
	if err := checkPing(b, 57); err != nil {
		t.Error(err)
	}
	if err := checkPing(b, 58); err == nil {
		t.Error("another ping is taken")
	}
}
