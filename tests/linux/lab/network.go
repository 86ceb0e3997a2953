package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// The host's side of the lab: an address of the range for benchmarks (RFC 2544), and one of a
// private range. Machine N has N as its last byte.
var (
	HostAddr  = netip.MustParseAddr("198.18.0.1")
	HostAddr6 = netip.MustParseAddr("fd00:18::1")

	// OtherAddrs are also the host's: for more RNICs.
	OtherAddrs = []netip.Addr{netip.MustParseAddr("198.18.0.253"), netip.MustParseAddr("198.18.0.254")}
)

// isolatedEnv marks the process that has a network of its own.
const isolatedEnv = "NVMEOF_LAB_ISOLATED"

// Isolated reports whether this process has a network namespace of its own.
func Isolated() bool { return os.Getenv(isolatedEnv) != "" }

// Isolate runs this program again with the same arguments, in a network namespace of its own, and returns its exit
// code. The namespace ends with the last process in it, so nothing is left behind, however the program ends.
func Isolate() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:gosec // this very program, as it was called
	cmd.Env = append(os.Environ(), isolatedEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	signal.Ignore(os.Interrupt) // the terminal sends it to both; the other one decides
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// bridge is the name of the network.
const bridge = "br0"

// Network makes the lab's network, a bridge that has the host's addresses, with the given MTU.
// Called again it changes the MTU.
func Network(ctx context.Context, mtu int) error {
	if !Isolated() {
		return errors.New("lab: this is the network of the host: call Isolate first")
	}
	if _, err := net.InterfaceByName(bridge); err == nil { // sysfs would show the network that it was mounted in
		return ip(ctx, fmt.Sprintf("link set %s mtu %d", bridge, mtu))
	}
	return ip(ctx,
		"link set lo up",
		"link add "+bridge+" type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
		fmt.Sprintf("link set %s mtu %d up", bridge, mtu),
		fmt.Sprintf("addr add %s/24 dev %s", HostAddr, bridge),
		fmt.Sprintf("addr add %s/24 dev %s", OtherAddrs[0], bridge),
		fmt.Sprintf("addr add %s/24 dev %s", OtherAddrs[1], bridge),
		fmt.Sprintf("addr add %s/64 dev %s nodad", HostAddr6, bridge))
}

// tap makes a network device for a machine and plugs it into the bridge.
func tap(ctx context.Context, name string, mtu int) error {
	return ip(ctx,
		"tuntap add dev "+name+" mode tap",
		fmt.Sprintf("link set %s mtu %d master %s up", name, mtu, bridge))
}

// ip runs commands of ip(8).
func ip(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		if _, err := output(ctx, "", "ip", strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
}
