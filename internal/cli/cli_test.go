package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestParseEndpoint(t *testing.T) {
	for in, want := range map[string]string{
		"rdma://127.0.0.1:4420":   "rdma://127.0.0.1:4420",
		"tcp://127.0.0.1":         "tcp://127.0.0.1:4420",
		"tcp://[::1]:8009":        "tcp://[::1]:8009",
		"tcp://[::1]":             "tcp://[::1]:4420",
		"tcp://::1":               "tcp://[::1]:4420",
		"rdma://::ffff:127.0.0.1": "rdma://127.0.0.1:4420",
		"tcp://[2001:db8::1:80]":  "tcp://[2001:db8::1:80]:4420",
		"tcp://2001:db8::a:beef":  "tcp://[2001:db8::a:beef]:4420",
		"rdma://0.0.0.0":          "rdma://0.0.0.0:4420",
	} {
		e, err := ParseEndpoint(in)
		if err != nil || e.String() != want {
			t.Errorf("%s: %v, %v, want %s", in, e, err, want)
		}
	}
	for in, says := range map[string]string{
		"":                         "rdma://ADDRESS:PORT",
		"127.0.0.1:4420":           "rdma://ADDRESS:PORT",
		"loop://127.0.0.1":         "rdma or tcp",
		"://127.0.0.1":             "no transport",
		"rdma://":                  "no address",
		"rdma://:4420":             "no address",
		"rdma://localhost":         "not an IP address",
		"tcp://127.0.0.1:0":        "not a port",
		"tcp://127.0.0.1:65536":    "not a port",
		"tcp://127.0.0.1:nvme":     "not a port",
		"tcp://127.0.0.1:44 20":    "not a port",
		"tcp://300.0.0.1:4420":     "not an IP address",
		"tcp://127.0.0.1:4420/x":   "not a port",
		"tcp://224.0.0.1":          "a multicast address",
		"rdma://ff02::1":           "a multicast address",
		"tcp://255.255.255.255":    "a broadcast address",
		"tcp://fe80::1":            "fe80::1%eth0",
		"tcp://::1:4429":           "write tcp://[::1]:4429, or tcp://[::1:4429] if",
		"tcp://[::1:4429":          "not an IP address",
		"tcp://[[::1]]":            "not an IP address",
		"rdma://1:2::3:80":         "write rdma://[1:2::3]:80",
		"tcp://1:2:3:4:5:6:7:8:80": "write tcp://[1:2:3:4:5:6:7:8]:80",
	} {
		if e, err := ParseEndpoint(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v, want %q", in, e, err, says)
		}
	}
}

// command returns a program with a command that returns err, and flags of every kind.
func command(err error) *cobra.Command {
	root := &cobra.Command{Use: "program"}
	sub := &cobra.Command{Use: "do", Args: NoArgs, Example: "  program do", RunE: func(*cobra.Command, []string) error { return err }}
	var size Size
	sub.Flags().Var(&size, "size", "a size")
	sub.Flags().Duration("time", time.Second, "a time")
	sub.Flags().Int("int", 0, "a number")
	sub.Flags().Uint32("uint", 0, "a number")
	sub.Flags().Uint8("small", 0, "a number")
	sub.Flags().IntSlice("list", nil, "numbers")
	sub.Flags().Bool("bool", false, "a choice")
	sub.Flags().StringP("name", "n", "", "a name")
	sub.Flags().StringArray("host", nil, "names")
	sub.Flags().StringSlice("paths", nil, "names with commas between")
	var output Format
	OutputFlag(sub.Flags(), &output)
	more := NewFlags()
	more.String("far", "", "`WHERE` it is")
	AddFlags(sub, "Elsewhere", more)
	root.AddCommand(sub)
	return Parent(root)
}

// run returns the exit code and the output.
func run(ctx context.Context, root *cobra.Command, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{}, args...)) // not nil, which is those of the test's own program
	code = Execute(ctx, root, &errs)
	return code, out.String(), errs.String()
}

func TestExecute(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		args string
		err  error
		code int
		says string
	}{
		{"do", nil, ExitOK, ""},
		{"do", cause, ExitFailure, "program: cause\n"},
		{"do", errors.Join(errors.New("nvme: one"), errors.New("two")), ExitFailure, "program: one; two\n"},
		{"do", Usage("--x: %w", cause), ExitUsage, "program: --x: cause\n"},
		{"do", Say(cause, "%s", "better"), ExitFailure, "program: better\n"},
		{"do", Say(os.NewSyscallError("socket", unix.EMFILE), "connect: %v", unix.EMFILE), ExitFailure,
			"program: connect: too many open files; raise the limit of open files (ulimit -n, or LimitNOFILE= of systemd)\n"},
		{"do", os.NewSyscallError("socket", unix.ENFILE), ExitFailure,
			"program: socket: too many open files in system; close files of other programs, or raise the system's limit (sysctl fs.file-max)\n"},
		{"do", &net.OpError{Op: "dial", Net: "tcp", Err: unix.ENOSPC}, ExitFailure,
			"program: dial tcp: no space left on device; the system watches no more sockets for this user: raise that limit (sysctl fs.epoll.max_user_watches)\n"},
		{"do", FileError("--out", "f", &fs.PathError{Op: "open", Path: "f", Err: fs.ErrNotExist}), ExitFailure, "program: --out f: file does not exist\n"},
		{"do", FileError("--in", "f", os.NewSyscallError("getwd", fs.ErrNotExist)), ExitFailure, "program: --in f: the working directory has been removed"},
		{"do", CreateError("--out", "f", fs.ErrExist), ExitFailure, "program: --out f exists already: remove it, or choose another name\n"},
		{"do", CreateError("--out", "/none/f", &fs.PathError{Op: "open", Path: "/none/f", Err: fs.ErrNotExist}), ExitFailure,
			"program: --out /none/f: file does not exist; make /none first, or choose another place\n"},
		{"do", CreateError("--out", "/proc/f", &fs.PathError{Op: "open", Path: "/proc/f", Err: fs.ErrNotExist}), ExitFailure,
			"program: --out /proc/f: file does not exist; choose another place\n"},
		{"do", CheckNQN("--nqn", "x"), ExitUsage, `program: --nqn: "x" is not an NVMe Qualified Name`},
		{"do", CheckSubNQN("-n", "x y"), ExitUsage, `program: -n: "x y" is not an NVMe Qualified Name`},
		{"comp", nil, ExitUsage, `program: there is no command "comp"; is completion meant? see program --help` + "\n"},
		{"doo", nil, ExitUsage, `program: there is no command "doo"; is do meant? see program --help` + "\n"},
		{"undo", nil, ExitUsage, `program: there is no command "undo" among completion, do; see program --help` + "\n"}, // two letters of four are another word
		{"bogus", nil, ExitUsage, `program: there is no command "bogus" among completion, do; see program --help` + "\n"},
		{"bogus --help", nil, ExitUsage, `program: there is no command "bogus"`},
		{"bogus --flag", nil, ExitUsage, `program: there is no command "bogus"`},
		{"bogus -f x", nil, ExitUsage, `program: there is no command "bogus"`},
		{"-h bogus", nil, ExitUsage, `program: there is no command "bogus"`},
		{"help bogus", nil, ExitUsage, `program: there is no command "bogus"`},
		{"help do", nil, ExitOK, ""},
		{"help do it", nil, ExitUsage, `program: program do has no commands, and so no "it"; see program do --help` + "\n"},
		{"completion bogus", nil, ExitUsage, `program: there is no command "bogus" among bash, fish, powershell, zsh; see program completion --help`},
		{"do it", nil, ExitUsage, `program: do takes flags only, not "it"; see program do --help` + "\n"},
		{"do --no", nil, ExitUsage, "program: unknown flag: --no; see program do --help\n"},
		{"do --size x", nil, ExitUsage, `program: --size "x": want a size, as 4096, 64MiB or 1GiB; see program do --help` + "\n"},
		{"do --size 8EiB", nil, ExitUsage, `program: --size "8EiB": want less than 8 EiB, as no volume has more; see`},
		{"do --size 16EiB", nil, ExitUsage, `program: --size "16EiB": want less than 8 EiB`},
		{"do --time x", nil, ExitUsage, `--time "x": want a time`},
		{"do --int x", nil, ExitUsage, `--int "x": want a whole number`},
		{"do --uint -1", nil, ExitUsage, `--uint "-1": want a number from 0 to 4294967295`},
		{"do --uint 4294967296", nil, ExitUsage, `--uint "4294967296": want a number from 0 to 4294967295`},
		{"do --small 256", nil, ExitUsage, `--small "256": want a number from 0 to 255`},
		{"do --list 1,x", nil, ExitUsage, `--list "1,x": want whole numbers with commas between`},
		{"do -o json", nil, ExitOK, ""},
		{"do -o xml", nil, ExitUsage, `--output-format "xml": want normal or json; see program do --help` + "\n"},
		{"do --bool=x", nil, ExitUsage, `--bool "x": want true or false`},
		{"do --name=", nil, ExitUsage, "program: --name: it is empty; give it a value, or leave the flag out\n"},
		{"do -n x --host y --host= --host z", nil, ExitUsage, "program: --host: it is empty"},
		{"do --paths=", nil, ExitUsage, "program: --paths: it is empty"},
		{"do -n x --host y --paths x,y", nil, ExitOK, ""},
	} {
		code, _, stderr := run(t.Context(), command(c.err), strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("%s: exit code %d, %q, want %d, %q", c.args, code, stderr, c.code, c.says)
		}
	}
	if !errors.Is(Say(cause, "x"), cause) || !errors.Is(CheckNQN("-n", "x"), nvme.ErrNQN) {
		t.Error("another text hides the cause")
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := run(ctx, command(ctx.Err()), "do")
	if code != ExitInterrupt || stderr != "program: interrupted\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// Help shows a command's own flags first, and others under their heading.
func TestUsage(t *testing.T) {
	code, out, stderr := run(t.Context(), command(nil), "do", "--help")
	if code != ExitOK || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	at := -1
	for _, part := range []string{"Usage:\n  program do", "Examples:\n  program do", "Flags:\n", "--size", "Elsewhere:\n", "--far WHERE"} {
		i := strings.Index(out, part)
		if i <= at {
			t.Errorf("%q is not there, or not in its place:\n%s", part, out)
		}
		at = i
	}
	_, out, _ = run(t.Context(), command(nil))
	for _, part := range []string{"program COMMAND", "Commands:\n", "  do", "Exit status:\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in the program's help:\n%s", part, out)
		}
	}
}

// A failure to write is an error, even if the command doesn't notice.
func TestOutputFails(t *testing.T) {
	root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
		_, _ = io.WriteString(c.OutOrStdout(), "text")
		return nil
	}}
	root.SetOut(failing{})
	root.SetArgs([]string{}) // nil is those of the test's own program
	var stderr bytes.Buffer
	if code := Execute(t.Context(), root, &stderr); code != ExitFailure || stderr.String() != "program: standard output: it is full\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("it is full") }

// TestPrintJSON: characters that are special in HTML aren't escaped, as in the output of fio and nvme-cli.
func TestPrintJSON(t *testing.T) {
	var b strings.Builder
	if err := PrintJSON(&b, map[string]int{">=64": 1}); err != nil || b.String() != "{\n  \">=64\": 1\n}\n" {
		t.Errorf("%v, %q", err, b.String())
	}
}

// TestZoneUnknown: an interface that can't be looked for, because descriptors are used up, isn't said not to be there.
func TestZoneUnknown(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	failed := sandbox.FailOnce(t, unix.SYS_SOCKET, unix.EMFILE)
	if err := CheckZone(netip.MustParseAddr("fe80::1%lo")); !failed() || !errors.Is(err, unix.EMFILE) || strings.Contains(err.Error(), "no interface") {
		t.Errorf("%v; refused: %v", err, failed())
	}
}

// The interface in an address is given by its name or its number.
func TestCheckZone(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		t.Skip("the machine has no interface")
	}
	addr := netip.MustParseAddr("fe80::1")
	for _, zone := range []string{"", all[0].Name, strconv.Itoa(all[0].Index)} {
		if err := CheckZone(addr.WithZone(zone)); err != nil {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
	for _, zone := range []string{"nosuch", "999999", "-1", "0"} {
		if err := CheckZone(addr.WithZone(zone)); err == nil || !strings.Contains(err.Error(), zone) {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
}

// TestZoneByNumber: an endpoint that names its interface by number is the one that names it by name, which the
// addresses of accepted connections do: by those a target finds the ANA states of the endpoint.
func TestZoneByNumber(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		t.Skip("the machine has no interface")
	}
	for zone, want := range map[string]string{strconv.Itoa(all[0].Index): all[0].Name, all[0].Name: all[0].Name, "999999": "999999"} {
		e, err := ParseEndpoint("tcp://[fe80::1%" + zone + "]:4420")
		if err != nil || e.Addr.Addr().Zone() != want {
			t.Errorf("zone %q: %v, %v, want that of %q", zone, e, err, want)
		}
	}
}

// TestAbsent: what isn't a command is said to be none, beside what else is known of the command that has the others.
func TestAbsent(t *testing.T) {
	root := &cobra.Command{Use: "prog", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "my prog"}}
	root.AddCommand(&cobra.Command{Use: "one", Run: func(*cobra.Command, []string) {}})
	Absent(root, map[string]string{"two": "take one"})
	Absent(root, map[string]string{"three": "take one and two"})
	for name, instead := range map[string]string{"two": "take one", "three": "take one and two"} {
		if err := unknownCommand(root, name); err == nil || !strings.HasSuffix(err.Error(), ": "+instead) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := root.DisplayName(); s != "my prog" {
		t.Errorf("the program is called %q", s)
	}
	bare := &cobra.Command{Use: "bare"}
	Absent(bare, map[string]string{"two": "take one"})
	if bare.Annotations["two"] == "" {
		t.Error("a command without annotations gets none")
	}
}
