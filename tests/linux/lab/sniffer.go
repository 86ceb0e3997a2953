package lab

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Sniffer sees every frame that a machine sends and receives, as it is on the wire.
type Sniffer struct {
	fd   int
	wake [2]int // a pipe: its end says that no more is wanted
}

// sniffBuffer is the size of the buffer for frames that haven't been read yet, in bytes.
const sniffBuffer = 64 << 20

// Sniff begins to record the machine's frames.
func (m *Machine) Sniff() (*Sniffer, error) {
	dev, err := net.InterfaceByName(m.tapName())
	if err != nil {
		return nil, fmt.Errorf("lab: sniffer: %w", err)
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("lab: sniffer: %w", err)
	}
	s := &Sniffer{fd: fd}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, sniffBuffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: dev.Index}),
		unix.Pipe2(s.wake[:], unix.O_CLOEXEC))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("lab: sniffer: %w", err)
	}
	return s, nil
}

// Frames calls do for each frame, from its Ethernet header on, until Stop is called and the last frame was seen. It
// returns how many frames there was no room for. do must not keep the frame.
func (s *Sniffer) Frames(do func(frame []byte)) (lost uint32, err error) {
	defer func() {
		unix.Close(s.fd)
		unix.Close(s.wake[0])
	}()
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		switch {
		case err == nil:
			do(buf[:n])
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // the latter once, at the end
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, fmt.Errorf("lab: sniffer: %w", err)
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake[0])}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("lab: sniffer: %w", err)
		}
		if fds[0].Revents == 0 && fds[1].Revents != 0 {
			break
		}
	}
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("lab: sniffer: %w", err)
	}
	return stats.Drops, nil
}

// Stop ends Frames.
func (s *Sniffer) Stop() { unix.Close(s.wake[1]) }
