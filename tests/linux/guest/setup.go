package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setUp turns a kernel and an archive of files into a system.
func setUp() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"devpts", "/dev/pts"},
		{"tmpfs", "/dev/shm"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	_ = os.Symlink("/proc/self/fd", "/dev/fd")
	if err := run("modprobe", "-a", "virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "configfs"); err != nil {
		return err
	}
	if err := unix.Mount("configfs", "/sys/kernel/config", "configfs", 0, ""); err != nil {
		return fmt.Errorf("mount configfs: %w", err)
	}
	if err := unix.Sethostname([]byte(argument("name"))); err != nil {
		return err
	}
	if err := identify(argument("host")); err != nil {
		return err
	}
	if err := bringUp(argument("addresses"), argument("mtu")); err != nil {
		return err
	}
	return warmUp()
}

// identify writes the machine's identity as an NVMe host. NQN and identifier belong together: Linux 6.12 refuses an
// identifier that was used with another name.
func identify(id string) error {
	if err := os.MkdirAll("/etc/nvme", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/nvme/hostid", []byte(id+"\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile("/etc/nvme/hostnqn", []byte("nqn.2014-08.org.nvmexpress:uuid:"+id+"\n"), 0o644)
}

// bringUp assigns eth0 its addresses, separated by commas, and its MTU. Duplicate address detection would only delay
// addresses that the lab knows to be unique.
func bringUp(addresses, mtu string) error {
	for _, knob := range []string{"accept_dad", "accept_ra"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/eth0/"+knob, []byte("0"), 0)
	}
	if err := run("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	if err := run("ip", "link", "set", "eth0", "mtu", mtu, "up"); err != nil {
		return err
	}
	for a := range strings.SplitSeq(addresses, ",") {
		if err := run("ip", "addr", "add", a, "dev", "eth0"); err != nil {
			return err
		}
	}
	return nil
}

// warmUp makes the kernel's first TCP connections, which make it patch its own code while it runs. If two emulated
// processors are in that code at the same time, QEMU may execute the breakpoint that is temporarily placed there after
// it has been removed, and the kernel panics; so one processor goes alone, and first.
func warmUp() error {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		for range 3 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			if err := c.Close(); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond) // the kernel patches from a worker
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
