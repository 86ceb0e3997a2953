package udp

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// rocePort is the port of RoCEv2; the kernel's own RoCE is a likely owner of it.
const rocePort = 4791

// inUseRemedy says who holds the port of addr, as far as /proc tells, and what to do.
func inUseRemedy(addr netip.AddrPort) string {
	const other = "stop it, or choose another address, for loopback one of 127.0.0.0/8"
	switch inode, at, found := ownerInode(addr); {
	case found && inode == 0:
		return fmt.Sprintf("the kernel has it on %v, most likely rdma_rxe: remove its links with "+
			"`rdma link delete` and unload it, or run in another network namespace", at)
	case found:
		if pid, name, ok := processOf(inode); ok {
			return fmt.Sprintf("%s (process %d) has it: %s", name, pid, other)
		}
		return "another user's process has it, most likely nvmetgt or nvmeinit: " + other
	case addr.Port() == rocePort:
		return "nvmetgt, nvmeinit or the kernel's rdma_rxe may have it: " + other
	}
	return other
}

// tableLooks is how many times the tables of sockets are read to find one that must be in them: the kernel omits some
// when others come and go meanwhile.
const tableLooks = 5

// ownerInode finds the socket that keeps us from binding to addr.
func ownerInode(addr netip.AddrPort) (inode uint64, at netip.AddrPort, found bool) {
	for range tableLooks {
		for _, table := range []string{"udp", "udp6"} {
			f, err := os.Open("/proc/thread-self/net/" + table) // /proc/net is of the first thread's network namespace
			if err != nil {
				continue
			}
			inode, at, found = findOwner(f, addr)
			f.Close()
			if found {
				return inode, at, true
			}
		}
	}
	return 0, netip.AddrPort{}, false
}

// findOwner parses the format of /proc/net/udp: a heading, then one socket per line, whose second word is the local
// address and whose tenth is the inode. A kernel socket's inode is 0.
func findOwner(r io.Reader, addr netip.AddrPort) (inode uint64, at netip.AddrPort, found bool) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 10 {
			continue
		}
		local, ok := parseProcAddr(f[1])
		if !ok || local.Port() != addr.Port() {
			continue
		}
		a := local.Addr()
		if a != addr.Addr().WithZone("") && !a.IsUnspecified() {
			continue
		}
		n, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil {
			continue
		}
		return n, local, true
	}
	return 0, netip.AddrPort{}, false
}

// parseProcAddr parses "0100007F:12B7": the address as 32-bit words in the processor's byte order, and the port as a
// number.
func parseProcAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for w := 0; w < len(raw); w += 4 {
		binary.NativeEndian.PutUint32(raw[w:], binary.BigEndian.Uint32(raw[w:]))
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}

// processOf finds the process that has the socket open, among those that we may inspect.
func processOf(inode uint64) (pid int, name string, ok bool) {
	want := fmt.Sprintf("socket:[%d]", inode)
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err != nil || link != want {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue
		}
		pid, err = strconv.Atoi(filepath.Base(dir))
		return pid, strings.TrimSpace(string(comm)), err == nil
	}
	return 0, "", false
}
