package identity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

const (
	someUUID = "6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a"
	otherID  = "11111111-2222-3333-4444-555555555555"
	someNQN  = "nqn.2014-08.org.nvmexpress:uuid:" + someUUID

	// What is derived from a machine's identity and from a name must never change: reservations and access are lost
	// with it. These are UUIDs of version 5 of "nvmeof host " and either, in the namespace of OIDs, calculated separately.
	ofMachine = "532a92d5-d6a6-5524-a0de-b107cf3bb6f0"
	ofName    = "75c1a104-a9bc-5688-84df-2c1370783828"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newStore(t *testing.T) Store {
	dir := t.TempDir()
	return Store{Dirs: []string{filepath.Join(dir, "etc"), filepath.Join(dir, "home", "nvme")}, MachineID: filepath.Join(dir, "machine-id")}
}

// TestLoad: where an identity is saved, and what is loaded.
func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string // below the store's directory
		nqn, id string            // "": any
		source  string
		broken  string // the file, and what its error says
	}{
		"both":          {map[string]string{"etc/hostnqn": someNQN + "\n", "etc/hostid": otherID + "\n"}, someNQN, otherID, "etc/hostnqn", ""},
		"name":          {map[string]string{"etc/hostnqn": someNQN}, someNQN, someUUID, "etc/hostnqn", ""},
		"UUID":          {map[string]string{"etc/hostid": someUUID}, someNQN, someUUID, "etc/hostid", ""},
		"other form":    {map[string]string{"etc/hostnqn": "nqn.2024-01.com.example:me"}, "nqn.2024-01.com.example:me", ofName, "etc/hostnqn", ""},
		"user":          {map[string]string{"home/nvme/hostnqn": someNQN, "machine-id": "x"}, someNQN, someUUID, "home/nvme/hostnqn", ""},
		"system first":  {map[string]string{"etc/hostid": otherID, "home/nvme/hostnqn": someNQN}, "", otherID, "etc/hostid", ""},
		"machine":       {map[string]string{"machine-id": "0123456789abcdef\n"}, "nqn.2014-08.org.nvmexpress:uuid:" + ofMachine, ofMachine, "machine-id", ""},
		"first boot":    {map[string]string{"machine-id": "uninitialized\n"}, "", "", "home/nvme/hostnqn", ""},
		"zero machine":  {map[string]string{"machine-id": strings.Repeat("0", 32) + "\n"}, "", "", "home/nvme/hostnqn", ""},
		"nothing":       {nil, "", "", "home/nvme/hostnqn", ""},
		"no name":       {map[string]string{"etc/hostnqn": "me\n", "machine-id": "x"}, "", "", "", "etc/hostnqn: \"me\" is not an NVMe Qualified Name"},
		"empty name":    {map[string]string{"etc/hostnqn": "\n"}, "", "", "", "etc/hostnqn: it is empty"},
		"no UUID":       {map[string]string{"etc/hostnqn": someNQN, "etc/hostid": "12"}, "", "", "", "etc/hostid: it doesn't hold a UUID"},
		"empty UUID":    {map[string]string{"etc/hostid": ""}, "", "", "", "etc/hostid: it is empty"},
		"zero UUID":     {map[string]string{"etc/hostid": "00000000-0000-0000-0000-000000000000"}, "", "", "", "etc/hostid: it holds the UUID of all zeroes"},
		"a directory":   {map[string]string{"etc/hostnqn/x": ""}, "", "", "", "etc/hostnqn: "},
		"broken user's": {map[string]string{"home/nvme/hostnqn": "\x00"}, "", "", "", "home/nvme/hostnqn: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			root := filepath.Dir(s.Dirs[0])
			for path, text := range c.files {
				put(t, filepath.Join(root, path), text)
			}
			id, err := s.Load()
			if c.broken != "" {
				var file *FileError
				if !errors.As(err, &file) || !strings.Contains(strings.ReplaceAll(err.Error(), "nvme: ", ""), c.broken) ||
					!strings.Contains(err.Error(), "repair it") {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || c.nqn != "" && id.NQN != c.nqn || c.id != "" && id.ID.String() != c.id || id.ID.IsZero() ||
				id.Source != filepath.Join(root, c.source) {
				t.Errorf("%+v, %v", id, err)
			}
			if again, err := s.Load(); err != nil || again.NQN != id.NQN || again.ID != id.ID {
				t.Errorf("the second time %+v, %v", again, err)
			}
		})
	}
}

// TestSave: existing files are never replaced, and no partial file is left.
func TestSave(t *testing.T) {
	s := newStore(t)
	id := New()
	path, err := s.Save(id)
	if err != nil || path != filepath.Join(s.Dirs[1], "hostnqn") {
		t.Fatalf("%s, %v", path, err)
	}
	if got, err := s.Load(); err != nil || got.NQN != id.NQN || got.ID != id.ID || got.Source != path {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Save(New()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second time: %v", err)
	}
	if got, _ := s.Load(); got.NQN != id.NQN {
		t.Errorf("it was replaced by %+v", got)
	}
	files, err := os.ReadDir(s.Dirs[1])
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

// TestForbidden: a directory that can't be looked into, as another user's home, may hold an identity, and the error says
// so.
func TestForbidden(t *testing.T) {
	s := newStore(t)
	put(t, filepath.Join(s.Dirs[1], "hostnqn"), someNQN)
	if err := os.Chmod(filepath.Dir(s.Dirs[1]), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(s.Dirs[1]), 0o700) })
	sandbox.ObeyModes(t, func() {
		const want = "/hostnqn: permission denied; let this user read it, or set HOME if that is another user's"
		if _, err := s.Load(); !errors.Is(err, fs.ErrPermission) || err.Error() != s.Dirs[1]+want {
			t.Errorf("%v; want %s", err, want)
		}
	})
}

// TestMachineUnread: a host whose machine's identity is there but can't be read at the moment doesn't get another name,
// which would be saved and hold for good.
func TestMachineUnread(t *testing.T) {
	s := newStore(t)
	if err := os.Symlink(s.MachineID, s.MachineID); err != nil { // ELOOP
		t.Fatal(err)
	}
	if id, err := s.Load(); !errors.Is(err, unix.ELOOP) || !strings.Contains(err.Error(), s.MachineID) ||
		!strings.Contains(err.Error(), "put a name into "+filepath.Join(s.Dirs[0], nqnFile)) {
		t.Errorf("%+v, %v", id, err)
	}
	if err := os.Remove(s.MachineID); err != nil {
		t.Fatal(err)
	}
	put(t, s.MachineID, "0123456789abcdef\n")
	if id, err := s.Load(); err != nil || id.ID.String() != ofMachine {
		t.Errorf("the next time %+v, %v", id, err)
	}
}

// TestSaveNotDurable: an identity counts as saved only once the names of its directory, and of those made for it, are
// durable.
func TestSaveNotDurable(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	s := newStore(t)
	failed := sandbox.FailLater(t, unix.SYS_FSYNC, unix.EIO, 5) // two directories, then each file and its name
	if _, err := s.Save(New()); !failed() || !errors.Is(err, unix.EIO) {
		t.Errorf("%v; refused: %v", err, failed())
	}
}

// TestLoadAtOnce: several loads at once, with no identity saved, all get the same one.
func TestLoadAtOnce(t *testing.T) {
	for range 20 {
		s := Store{Dirs: []string{t.TempDir()}, MachineID: "/nowhere"}
		var ids [8]Identity
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i], _ = s.Load() })
		}
		all.Wait()
		for _, id := range ids {
			if id.NQN != ids[0].NQN || id.ID != ids[0].ID {
				t.Fatalf("%+v and %+v", ids[0], id)
			}
		}
	}
}

// TestUnsaved: where no identity can be saved each load returns another, and says why.
func TestUnsaved(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "etc", "settings"), "")
	for _, name := range []string{"link", "etc/hostid"} {
		if err := os.Symlink("/nowhere", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := Store{MachineID: "/nowhere"}
	for _, bad := range []string{"/proc/nvme", filepath.Join(dir, "link"), filepath.Join(dir, "etc")} { // nobody makes directories in /proc
		s.Dirs = []string{bad}
		for range 2 {
			if id, err := s.Load(); err != nil || id.NQN == "" || id.ID.IsZero() || id.Unsaved == nil {
				t.Errorf("%s: %+v, %v", bad, id, err)
			}
		}
	}
	s.Dirs = []string{t.TempDir()}
	if id, err := s.Load(); err != nil || id.Unsaved != nil {
		t.Errorf("saved: %+v, %v", id, err)
	}
}

// TestDefault: root's identity is the system's; that of another user may also be in the user's own configuration.
func TestDefault(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	want := []string{"/etc/nvme"}
	if os.Geteuid() != 0 {
		want = append(want, filepath.Join(home, "nvme"))
	}
	if s := Default(); !slices.Equal(s.Dirs, want) || s.MachineID != "/etc/machine-id" {
		t.Errorf("it is kept in %v, want %v", s.Dirs, want)
	}
}

// TestSavedModes: others, such as nvme-cli of another user, may read an identity, and only its owner may change it.
func TestSavedModes(t *testing.T) {
	s := newStore(t)
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	dir := s.Dirs[len(s.Dirs)-1]
	for name, want := range map[string]fs.FileMode{dir: 0o755, filepath.Join(dir, nqnFile): 0o644, filepath.Join(dir, idFile): 0o644} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}
