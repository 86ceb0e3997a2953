package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/tests/linux/control"
)

// Config describes a machine.
type Config struct {
	Name       string // at most 11 letters and digits
	Number     int    // its address is 198.18.0.Number; 2 to 252
	MTU        int    // 0: 1500
	Memory     int    // MiB; 0: 1024
	Processors int    // 0: 1
	Image      *Image
	// Programs are static programs of the host that the machine gets in /usr/bin.
	Programs []string
	// NVDIMM is a file of the host, of a multiple of 2 MiB, that is persistent memory of the machine: a store by the
	// machine's processor is in it at once, whatever happens to QEMU.
	NVDIMM string
	Disk   *Disk // /dev/vda
	Shell  bool  // a person's shell on this terminal instead of Run
}

// bootTimeout is how long a machine may take to answer; an idle host needs 10 s.
const bootTimeout = 3 * time.Minute

// Machine is a running virtual machine.
type Machine struct {
	Config
	Addr  netip.Addr // IPv4
	Addr6 netip.Addr

	dir     string // sockets, console
	qemu    *exec.Cmd
	channel *channel
}

// Boot starts a machine and waits until it accepts commands. A kernel may crash before it has begun anything, since an
// emulated processor doesn't always see code that another one patches. Then Boot boots it again.
func Boot(ctx context.Context, c Config) (*Machine, error) {
	m, err := boot(ctx, c)
	for range 2 {
		if !errors.Is(err, errPanic) {
			break
		}
		m, err = boot(ctx, c)
	}
	return m, err
}

// errPanic says that the kernel ended while it booted.
var errPanic = errors.New("the kernel ended before init")

func boot(ctx context.Context, c Config) (_ *Machine, err error) {
	c.MTU = cmp.Or(c.MTU, 1500)
	c.Memory = cmp.Or(c.Memory, 1024)
	c.Processors = cmp.Or(c.Processors, 1)
	m := &Machine{Config: c}
	n := byte(c.Number)
	m.Addr = netip.AddrFrom4([4]byte{198, 18, 0, n})
	a6 := HostAddr6.As16()
	a6[15] = n
	m.Addr6 = netip.AddrFrom16(a6)
	if m.dir, err = os.MkdirTemp("", "lab-"+c.Name+"-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			last := m.consoleTail()
			if strings.Contains(last, "Kernel panic") && !strings.Contains(last, "guest:") {
				err = fmt.Errorf("%w: %w", errPanic, err)
			}
			err = fmt.Errorf("machine %s: %w\n%s", c.Name, err, last)
			m.Close()
		}
	}()
	if err := tap(ctx, m.tapName(), c.MTU); err != nil {
		return nil, err
	}
	if err := m.start(); err != nil {
		return nil, err
	}
	if c.Shell {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	m.channel, err = dial(ctx, m.path("control"))
	return m, err
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

// tapName returns the name of the host's end of the machine's network.
func (m *Machine) tapName() string { return "tap-" + m.Name }

// start runs QEMU.
func (m *Machine) start() error {
	if err := m.writeInitrd(); err != nil {
		return err
	}
	m.qemu = exec.Command("qemu-system-x86_64", m.arguments()...)
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if m.Shell {
		m.qemu.Stdin, m.qemu.Stdout, m.qemu.Stderr = os.Stdin, os.Stdout, os.Stderr
	} else {
		log, err := os.Create(m.path("qemu.log"))
		if err != nil {
			return err
		}
		defer log.Close()
		m.qemu.Stdout, m.qemu.Stderr = log, log
	}
	return m.qemu.Start()
}

// writeInitrd concatenates archives; the kernel unpacks them one after another.
func (m *Machine) writeInitrd() error {
	var initrd bytes.Buffer
	for _, name := range []string{m.Image.Files, m.Image.Init} {
		archive, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		initrd.Write(archive)
	}
	programs := files{}
	for _, name := range m.Programs {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		programs["usr/bin/"+filepath.Base(name)] = &file{mode: 0o755, data: data}
	}
	if err := writeArchive(&initrd, programs); err != nil {
		return err
	}
	return os.WriteFile(m.path("initrd"), initrd.Bytes(), 0o600)
}

// maxProcessors is how many processors the machine could have. QEMU leaves memory barriers out of the code of a machine
// that never has a second one, though its devices run beside it: sooner or later virtio-net misses a notification, and
// the machine sends nothing any more ("NETDEV WATCHDOG: transmit queue 0 timed out").
func (m *Machine) maxProcessors() int { return max(m.Processors, 2) }

// plain turns off all of virtio-net's offloads: what the machine sends is what a wire would carry.
const plain = ",csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off" +
	",guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"

func (m *Machine) arguments() []string {
	id := sha256.Sum256([]byte(m.Name))
	serial := "file:" + m.path("console")
	if m.Shell {
		serial = "mon:stdio"
	}
	kernel := []string{
		"console=ttyS0", "quiet", "loglevel=5", "panic=-1", "oops=panic", "mitigations=off", "nowatchdog",
		"rcupdate.rcu_cpu_stall_suppress=1", // it is the host that stalls
		"audit=0", "tsc=reliable", "no_timer_check", "net.ifnames=0", "random.trust_cpu=on", "cgroup_disable=memory",
		"lab.name=" + m.Name,
		fmt.Sprintf("lab.addresses=%s/24,%s/64", m.Addr, m.Addr6),
		fmt.Sprintf("lab.mtu=%d", m.MTU),
		fmt.Sprintf("lab.host=%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16]),
	}
	if m.Shell {
		kernel = append(kernel, "lab.shell=1")
		if w, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
			kernel = append(kernel, fmt.Sprintf("lab.rows=%d", w.Row), fmt.Sprintf("lab.columns=%d", w.Col))
		}
	}
	machine, memory := "q35,usb=off,sata=off,smbus=off,vmport=off,hpet=off", fmt.Sprint(m.Memory)
	var storage []string
	if m.NVDIMM != "" {
		size := m.nvdimmSize() >> 20
		machine += ",nvdimm=on"
		memory += fmt.Sprintf(",slots=1,maxmem=%dM", int64(m.Memory)+size+1024) // and room to align
		storage = append(storage,
			"-object", fmt.Sprintf("memory-backend-file,id=nv0,share=on,mem-path=%s,size=%dM,align=2M", m.NVDIMM, size),
			"-device", "nvdimm,id=nvdimm0,memdev=nv0")
	}
	if m.Disk != nil {
		storage = append(storage,
			"-blockdev", "driver=nbd,node-name=disk0,export=,server.type=unix,server.path="+m.Disk.socket,
			"-device", "virtio-blk-pci,drive=disk0,write-cache=on")
	}
	return append(storage,
		"-name", m.Name, "-accel", "tcg,thread=multi,tb-size=256",
		"-cpu", processor,
		"-machine", machine,
		"-smp", fmt.Sprintf("%d,maxcpus=%d", m.Processors, m.maxProcessors()), "-m", memory, "-rtc", "base=utc",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.Image.Kernel, "-initrd", m.path("initrd"), "-append", strings.Join(kernel, " "),
		"-serial", serial,
		"-device", "virtio-rng-pci",
		"-netdev", "tap,id=n0,ifname="+m.tapName()+",script=no,downscript=no",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=n0,mac=52:54:00:18:00:%02x,host_mtu=%d,romfile=%s", m.Number, m.MTU, plain),
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=c0,path="+m.path("control")+",server=on,wait=off",
		"-device", "virtserialport,chardev=c0,name="+control.PortName,
	)
}

// processor is the model of the machine's processors. For cmpxchg16b, with which kernels allocate and free memory, QEMU
// 7.2 occasionally computes wrong flags: if it fails and an interrupt comes right after it, the kernel continues with
// whatever direction or mode the bits of an address happen to select, or dies of it.
const processor = "qemu64,-cx16,+ssse3,+sse4.1,+sse4.2,+popcnt,+lahf_lm,+pclmulqdq,+aes,+rdrand,+abm,+movbe,+clflushopt,+clwb"

// nvdimmSize returns the length of the file that is the machine's NVDIMM; 0 if there is none, which QEMU reports.
func (m *Machine) nvdimmSize() int64 {
	info, err := os.Stat(m.NVDIMM)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Wait waits until the machine of a person's shell ends.
func (m *Machine) Wait() error { return m.qemu.Wait() }

// Freeze stops the machine's processor; everything else goes on.
func (m *Machine) Freeze() { _ = m.qemu.Process.Signal(syscall.SIGSTOP) }

// Thaw lets it go on; its clock has not stopped.
func (m *Machine) Thaw() { _ = m.qemu.Process.Signal(syscall.SIGCONT) }

// Plug connects the machine's network or, if in is false, cuts it: the machine doesn't see a link go down.
func (m *Machine) Plug(ctx context.Context, in bool) error {
	if in {
		return ip(ctx, "link set "+m.tapName()+" master "+bridge)
	}
	return ip(ctx, "link set "+m.tapName()+" nomaster")
}

// Close ends the machine at once, as losing its power supply would. Its peers see it go silent.
func (m *Machine) Close() {
	if m.channel != nil {
		m.channel.close()
	}
	if m.qemu != nil && m.qemu.Process != nil {
		_ = m.qemu.Process.Kill()
		_ = m.qemu.Wait()
	}
	_ = ip(context.Background(), "link del "+m.tapName())
	_ = os.RemoveAll(m.dir)
}

// ExitError is the error of a command that ended with an exit code other than 0; if a signal ended it, that is 128 plus
// the signal.
type ExitError struct {
	Code   int
	Stderr string
}

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d: %s", e.Code, e.Stderr) }

// Run runs a shell line in the machine, for as long as ctx allows, and returns its standard output. If it fails, the
// error includes its standard error.
func (m *Machine) Run(ctx context.Context, line string) (string, error) {
	out, stderr, code, err := m.channel.run(ctx, line)
	if err == nil && code != 0 {
		err = &ExitError{code, strings.TrimSpace(stderr)}
	}
	if err != nil {
		return out, fmt.Errorf("%s: %s: %w", m.Name, line, err)
	}
	return out, nil
}

// complaints matches what a kernel writes that has found a fault in itself.
var complaints = regexp.MustCompile(`(?m)^.*(BUG:|Oops|WARNING: CPU|Call Trace|blocked for more than|Kernel panic|general protection|refcount_t).*$`)

// Complaints returns the lines of the console with which the kernel says that something in it is wrong.
func (m *Machine) Complaints() []string {
	b, _ := os.ReadFile(m.path("console"))
	return complaints.FindAllString(string(b), -1)
}

// Crashed reports whether the machine no longer answers, and what it and QEMU said last.
func (m *Machine) Crashed() (last string, crashed bool) {
	if !m.channel.dead() {
		return "", false
	}
	return m.consoleTail(), true
}

// dumpedFlags matches the flags that a dying kernel found in the processor.
var dumpedFlags = regexp.MustCompile(`EFLAGS: ([0-9a-f]{8})\b`)

// EmulatorFault reports whether the kernel died of something that no real processor does: of flags that can't be set,
// or of a double fault in the middle of ordinary code. QEMU makes such mistakes now and then; neither the kernel nor
// its peers are to blame.
func (m *Machine) EmulatorFault() bool {
	b, _ := os.ReadFile(m.path("console"))
	return emulatorFault(b)
}

func emulatorFault(console []byte) bool {
	const defined = 1<<22 - 1 // the rest of RFLAGS is always 0
	for _, dump := range dumpedFlags.FindAllSubmatch(console, -1) {
		if flags, err := strconv.ParseUint(string(dump[1]), 16, 32); err == nil && flags > defined {
			return true
		}
	}
	return bytes.Contains(console, []byte("PANIC: double fault"))
}

// consoleTail returns the end of what the machine and QEMU said, for errors.
func (m *Machine) consoleTail() string {
	var all []byte
	for _, name := range []string{"qemu.log", "console"} {
		b, _ := os.ReadFile(m.path(name))
		all = append(all, b...)
	}
	return string(all[max(0, len(all)-6000):])
}
