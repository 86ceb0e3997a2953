package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// serveShell gives a person a shell on the console; when it ends, the machine ends.
func serveShell() error {
	tty, err := os.OpenFile("/dev/ttyS0", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size(tty)
	fmt.Fprint(tty, "\r\nA lab machine. The other side is 198.18.0.1 and fd00:18::1. To begin:\r\n"+
		"  modprobe -a rdma_rxe nvme-rdma nvme-tcp; rdma link add rxe0 type rxe netdev eth0\r\n"+
		"  nvme discover -t rdma -a 198.18.0.1 -s 4420\r\n"+
		"It ends with the shell (exit), or with Ctrl-A X.\r\n\r\n")
	c := exec.Command("/bin/bash", "--norc", "-i")
	c.Dir = "/root"
	c.Env = append(os.Environ(), "TERM=linux", "PS1="+argument("name")+"# ")
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	_ = c.Run()
	syscall.Sync()
	return syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// size sets the terminal's size to that of the person's terminal; a serial line has none.
func size(tty *os.File) {
	rows, err := strconv.ParseUint(argument("rows"), 10, 16)
	columns, cerr := strconv.ParseUint(argument("columns"), 10, 16)
	if err != nil || cerr != nil || rows == 0 || columns == 0 {
		return // no terminal there
	}
	_ = unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
}
