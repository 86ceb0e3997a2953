package tests

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// admin executes an administrative command.
func (h *hostSide) admin(t testing.TB, cmd nvme.Command, data []byte) {
	t.Helper()
	r := host.Request{Cmd: cmd, Data: data}
	if err := h.Admin().Do(t.Context(), &r); err != nil {
		t.Fatalf("%s: %v", cmd.Opcode().AdminName(), err)
	}
}

func createOf(blocks uint64, format uint8, nmic nvme.NMIC) []byte {
	spec := nvme.NamespaceSpec{NSZE: blocks, NCAP: blocks, FLBAS: format, NMIC: nmic}
	return spec.AppendTo(nil)
}

var createNamespace = make1(func(c *nvme.Command) { c.SetNSCreate(nvme.CSINVM) })

func attachmentOf(nsid uint32, a nvme.NSAction) nvme.Command {
	return make1(func(c *nvme.Command) { c.SetNSAttachment(nsid, a) })
}

func (h *hostSide) nsids(t testing.TB, cns nvme.CNS) nvme.NSIDList {
	t.Helper()
	b := make([]byte, nvme.PageSize)
	h.admin(t, identifyOf(cns, 0, 0), b)
	l, err := nvme.ParseNSIDList(b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// createdContent is what the host of a path writes to its namespace.
func createdContent(path string) []byte { return bytes.Repeat([]byte(path+"!"), 4096)[:8192] }

// create makes a namespace of the i-th format, attaches it to itself and writes to it.
func (h *hostSide) create(t *testing.T, i int, path string) uint32 {
	t.Helper()
	nsid, err := h.CreateNamespace(t.Context(), &nvme.NamespaceSpec{NSZE: 1024, NCAP: 1024, FLBAS: uint8(i), NMIC: nvme.NMICShared})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(h.nsids(t, nvme.CNSActiveNSIDs), nsid) {
		t.Errorf("%s: namespace %d is attached before anybody attached it", path, nsid)
	}
	if err := h.AttachNamespace(t.Context(), nsid); err != nil {
		t.Fatal(err)
	}
	ns := h.namespace(t, nsid)
	if ns.BlockSize() != []int{4096, 512}[i] || nsid != target.FirstCreatedNSID+uint32(i) {
		t.Errorf("%s: namespace %d, blocks of %d bytes", path, nsid, ns.BlockSize())
	}
	if _, err := ns.WriteAt(t.Context(), createdContent(path), 0); err != nil {
		t.Fatal(err)
	}
	if err := ns.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return nsid
}

// findAndDelete reads what create wrote, and deletes the namespace.
func (h *hostSide) findAndDelete(t *testing.T, nsid uint32, path string) {
	t.Helper()
	if l := h.nsids(t, nvme.CNSActiveNSIDs); !slices.Contains(l, nsid) {
		t.Fatalf("%s: after a restart the host has %v", path, l)
	}
	ns := h.namespace(t, nsid)
	b := make([]byte, 8192)
	if _, err := ns.ReadAt(t.Context(), b, 0); err != nil || !bytes.Equal(b, createdContent(path)) {
		t.Errorf("%s: what was flushed isn't there: %v", path, err)
	}
	if err := h.DetachNamespace(t.Context(), nsid, h.CNTLID()); err != nil {
		t.Error(err)
	}
	if l := h.nsids(t, nvme.CNSActiveNSIDs); slices.Contains(l, nsid) {
		t.Errorf("%s: detached, and still among %v", path, l)
	}
	if err := h.DeleteNamespace(t.Context(), nsid); err != nil {
		t.Error(err)
	}
}

// TestCreatePrograms: namespaces that one run of nvmeinit creates and attaches are found, used and deleted by later
// runs of the same host; another host doesn't see them.
func TestCreatePrograms(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), freeAddr(t)
	file := filepath.Join(dir, "target.yaml")
	writeText(t, file, fmt.Sprintf(`listen: ["rdma://%[1]s:%[2]s", "tcp://%[1]s:%[2]s"]
state: %[3]s/state
subsystems:
- nqn: %[4]s
  create: {directory: %[3]s/volumes, capacity: 16MiB}
- nqn: %[4]s-fixed
  namespaces:
  - {volume: "mem:1MiB"}
`, addr, nvmePort, dir, testNQN))
	p := startServe(t, addr, "--config", file)
	block := makeFile(t, dir+"/block", 4096)
	for i, transport := range transports {
		first := fmt.Sprint(target.FirstCreatedNSID)
		for _, c := range []struct{ line, stdout, stderr string }{
			{"create-ns --size 4MiB --block-size 512", "namespace " + first + "\n", ""},
			{"list-ns", "no namespaces\n", ""},
			{"list", "no namespaces\n", ""},
			{"list-ctrl --nsid " + first, "no controllers\n", ""},
			{"attach-ns --controllers 65536 --nsid " + first, "", "--controllers 65536: want numbers from 0 to 65535"},
			{"attach-ns --controllers -1 --nsid " + first, "", "--controllers -1"},
			{"attach-ns --controllers 65535 --nsid " + first, "", "controller"},
			{"attach-ns --nsid " + first, "", ""},
			{"attach-ns --nsid " + first, "", "already attached"},
			{"write --quiet --nsid " + first + " --input " + block, "", ""},
			{"format --nsid " + first, "", ""}, // to the format that it has
			{"id-ns --nsid " + first, "block_size : 512", ""},
			{"list-ns -q nqn.2026-11.org.example:other", "no namespaces\n", ""},
			{"detach-ns --nsid " + first, "", ""},
			{"list-ns", "no namespaces\n", ""},
			{"delete-ns --nsid " + first, "", ""},
			{"delete-ns --nsid " + first, "", "no namespace that hosts created"},
			{"create-ns --nsze 2048 --flbas 0 -o json", `"nsid": ` + first, ""},
			{"create-ns --size 16MiB", "", "insufficient capacity"},
			{"create-ns --nsze 2048 --ncap 1024", "", "thin provisioning"},
			{"create-ns --size 1MiB --block-size 8192", "", "512 B"},
			{"create-ns --size 1000", "", "multiple of the block, 4096"},
			{"delete-ns --nsid " + first, "", ""},
			{"list-ns --all", "no namespaces\n", ""},
			{"create-ns --size 1MiB -n " + testNQN + "-fixed", "", "create: in the file"},
		} {
			verb, flags, _ := strings.Cut(c.line, " ")
			if !strings.Contains(flags, "-n ") {
				flags += " -n " + testNQN
			}
			r := p.run(t, cliTimeout, transports[(i+len(c.line))%2], verb, args(flags)...)
			if (r.code == 0) != (c.stderr == "") || !strings.Contains(r.stdout, c.stdout) || !strings.Contains(r.stderr, c.stderr) {
				t.Errorf("%s: %s: exit code %d, %q, %q; want %q, %q", transport, c.line, r.code, r.stdout, r.stderr, c.stdout, c.stderr)
			}
		}
	}
	p.stop(t)
}

// TestHostsCreate: if the operator's file allows it, hosts create, attach, use and delete namespaces over either
// transport, and all of that survives kill -9 of the target.
func TestHostsCreate(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), freeAddr(t)
	at := addr.String() + ":" + nvmePort
	file := filepath.Join(dir, "target.yaml")
	writeText(t, file, fmt.Sprintf(`listen: ["rdma://%s", "tcp://%s"]
state: %s
subsystems:
- nqn: %s
  create: {directory: %s, capacity: 64MiB}
  namespaces:
  - {volume: "mem:16MiB"}
`, at, at, filepath.Join(dir, "state"), testNQN, filepath.Join(dir, "volumes")))
	p := startServe(t, addr, "--config", file)
	made := map[string]uint32{}
	same := func(c *host.Config) { c.HostNQN = oneHost }
	for i, path := range transports {
		h := dialHost(t, p.remote(), path, same)
		made[path] = h.create(t, i, path)
		h.close(t)
	}
	p.kill()
	p = startServe(t, addr, "--config", file)
	for _, path := range transports {
		h := dialHost(t, p.remote(), path, same)
		h.findAndDelete(t, made[path], path)
		h.close(t)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "volumes", "*")); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	p.stop(t)
}

// TestSanitizeEverywhere: a host erases all namespaces over either transport, is notified of the end, and finds it in
// the Sanitize Status and Persistent Event logs.
func TestSanitizeEverywhere(t *testing.T) {
	t.Parallel()
	p := startTarget(t, "--volume", "mem:8MiB", "--volume", filepath.Join(t.TempDir(), "disk"), "--size", "8MiB", "--state", filepath.Join(t.TempDir(), "state"))
	for _, path := range transports {
		told := make(chan nvme.AsyncEvent, 8)
		h := dialHost(t, p.remote(), path, func(c *host.Config) {
			c.Event = func(_ *host.Controller, e nvme.AsyncEvent) { told <- e }
		})
		for nsid := uint32(1); nsid <= 2; nsid++ {
			ns := h.namespace(t, nsid)
			if _, err := ns.WriteAt(t.Context(), bytes.Repeat([]byte{0xaa}, 8192), 4096); err != nil {
				t.Fatal(err)
			}
		}
		h.admin(t, make1(func(c *nvme.Command) { c.SetSanitize(nvme.SanitizeOverwrite, 0, 1, 0x5a5a5a5a) }), nil)
		if e := <-told; e != nvme.EventSanitized {
			t.Errorf("%s: event %v", path, e)
		}
		for nsid := uint32(1); nsid <= 2; nsid++ {
			ns := h.namespace(t, nsid)
			b := make([]byte, 1<<20)
			if _, err := ns.ReadAt(t.Context(), b, 0); err != nil || !bytes.Equal(b, bytes.Repeat([]byte{0x5a}, len(b))) {
				t.Errorf("%s: something is left in namespace %d: %v", path, nsid, err)
			}
		}
		b := make([]byte, nvme.SanitizeLogSize)
		var log nvme.SanitizeLog
		if err := errors.Join(h.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogSanitize}, b), log.Parse(b)); err != nil || log.SSTAT.State() != nvme.SanitizeDone {
			t.Errorf("%s: log %+v, %v", path, log, err)
		}
		b = make([]byte, 4096)
		var header nvme.PersistentLogHeader
		var e nvme.PersistentEvent
		err := h.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogPersistent, LSP: uint8(nvme.PersistentEstablish)}, b)
		if err == nil {
			err = header.Parse(b)
		}
		if err == nil {
			_, err = e.Parse(b[nvme.PersistentHeaderSize:])
		}
		if err != nil || e.Type != nvme.PersistentSanitizeEnd {
			t.Errorf("%s: the newest event is %#x, %v", path, e.Type, err)
		}
		h.close(t)
	}
}

// TestWrongManagement is TestWrongFields for commands that exist only in subsystems whose hosts may create namespaces.
func TestWrongManagement(t *testing.T) {
	noLeaks(t)
	store, err := statedir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "state", store.Close)
	pool, err := blockdev.OpenDirectory(t.TempDir(), 1<<20, blockdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "pool", pool.Close)
	v := newMemory(t, 1<<20)
	_, remote := serveConfig(t, target.Config{Store: store, Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}, Pool: pool},
	}})
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			h := dialPair(t, remote, path)
			defer h.close(t)
			d := dialHost(t, remote, path, func(c *host.Config) { c.SubNQN = nvme.DiscoveryNQN })
			defer d.close(t)
			w := &wrongSender{t: t, h: h, d: d}
			for _, row := range wrongManagement(h.CNTLID()) {
				w.sendData(&row.wrongField, row.body, row.detail)
			}
			if l := h.nsids(t, nvme.CNSAllocatedNSIDs); !slices.Equal(l, nvme.NSIDList{1}) {
				t.Errorf("allocated %v", l)
			}
		})
	}
}

// wrongBody is a wrongField with the data of the host.
type wrongBody struct {
	wrongField
	body   []byte
	detail uint64 // Command Specific Information
}

func wrongManagement(cntlid uint16) []wrongBody {
	remove := func(nsid uint32) nvme.Command { return make1(func(c *nvme.Command) { c.SetNSDelete(nsid) }) }
	list := func(ids ...uint16) []byte { return nvme.ControllerList(ids).AppendTo(nil) }
	spec := func(change func(*nvme.NamespaceSpec)) []byte {
		p := nvme.NamespaceSpec{NSZE: 1, NCAP: 1}
		change(&p)
		return p.AppendTo(nil)
	}
	sel2 := wrongByte(createNamespace, 40, 2)
	ofNSID := createNamespace
	ofNSID.SetNSID(5)
	row := func(name string, cmd nvme.Command, body []byte, st nvme.Status, at int) wrongBody {
		return wrongBody{wrongField{name, adminQueue, cmd, len(body), st, at, 0}, body, 0}
	}
	detailed := func(detail uint64, b wrongBody) wrongBody { b.detail = detail; return b }
	events := logOf(nvme.GetLogPage{LID: nvme.LogPersistent, Length: 512})
	return []wrongBody{
		row("management, SEL 2", sel2, spec(func(*nvme.NamespaceSpec) {}), nvme.StatusInvalidField, 40),
		row("create with an NSID", ofNSID, spec(func(*nvme.NamespaceSpec) {}), nvme.StatusInvalidField, 4),
		row("create, zoned", wrongByte(createNamespace, 47, 2), spec(func(*nvme.NamespaceSpec) {}), nvme.StatusCommandSetNotSupported, 47),
		row("create, 384 bytes", createNamespace, make([]byte, 384), nvme.StatusSGLLengthInvalid, 24),
		row("create, size 0", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.NSZE, p.NCAP = 0, 0 }), nvme.StatusInvalidField, nowhere),
		row("create, thin", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.NSZE = 2 }), nvme.StatusThinNotSupported, nowhere),
		row("create, LBA format 2", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.FLBAS = 2 }), nvme.StatusInvalidFormat, nowhere),
		row("create, protection", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.DPS = 1 }), nvme.StatusInvalidFormat, nowhere),
		row("create, NMIC 2", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.NMIC = 2 }), nvme.StatusInvalidField, nowhere),
		row("create, NVM set 1", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.NVMSETID = 1 }), nvme.StatusInvalidField, nowhere),
		row("create, ANA group 129", createNamespace, spec(func(p *nvme.NamespaceSpec) { p.ANAGRPID = 129 }), nvme.StatusANAGroupInvalid, nowhere),
		detailed(257*4096, row("create, too large", createNamespace, createOf(257, 0, 0), nvme.StatusInsufficientCapacity, nowhere)),
		detailed(math.MaxUint64, row("create, absurdly large", createNamespace, createOf(math.MaxUint64, 0, 0), nvme.StatusInsufficientCapacity, nowhere)),
		row("delete the operator's", remove(1), nil, nvme.StatusOperationDenied, nowhere),
		row("delete all, the operator's too", remove(nvme.NSIDAll), nil, nvme.StatusOperationDenied, nowhere),
		row("delete none", remove(7), nil, nvme.StatusInvalidNamespace, 4),
		row("delete 0", remove(0), nil, nvme.StatusInvalidNamespace, 4),
		row("attachment, SEL 2", wrongByte(attachmentOf(1, 0), 40, 2), list(cntlid), nvme.StatusInvalidField, 40),
		row("attach none", attachmentOf(7, nvme.NSAttach), list(cntlid), nvme.StatusInvalidNamespace, 4),
		row("attach all", attachmentOf(nvme.NSIDAll, nvme.NSAttach), list(cntlid), nvme.StatusInvalidField, 4),
		row("attach, 16 bytes", attachmentOf(1, nvme.NSAttach), make([]byte, 16), nvme.StatusSGLLengthInvalid, 24),
		row("attach to nobody", attachmentOf(1, nvme.NSAttach), list(), nvme.StatusInvalidControllerList, nowhere),
		detailed(4, row("detach from a controller twice", attachmentOf(1, nvme.NSDetach), list(cntlid, cntlid), nvme.StatusInvalidControllerList, nowhere)),
		detailed(2, row("detach from no controller", attachmentOf(1, nvme.NSDetach), list(0xfff0), nvme.StatusInvalidControllerList, nowhere)),
		detailed(2, row("attach what is attached", attachmentOf(1, nvme.NSAttach), list(cntlid), nvme.StatusNamespaceAlreadyAttached, nowhere)),
		row("persistent events without a context", events, make([]byte, 512), nvme.StatusCommandSequence, nowhere),
	}
}
