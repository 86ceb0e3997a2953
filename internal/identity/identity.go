package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// Names of the files.
const (
	nqnFile = "hostnqn"
	idFile  = "hostid"
)

// Identity is the name and UUID of a host.
type Identity struct {
	NQN     string
	ID      nvme.HostID
	Source  string // the file that it comes from, or "generated"
	Unsaved error  // why it couldn't be saved, so that the next Load returns another one; nil otherwise
}

// Store says where an identity is kept.
type Store struct {
	Dirs      []string // the first one that has a file is used; Save writes to the last
	MachineID string   // the file from which identities are derived
}

// Default returns the store of the user who runs the program.
func Default() Store {
	s := Store{Dirs: []string{"/etc/nvme"}, MachineID: "/etc/machine-id"}
	if os.Geteuid() == 0 {
		return s
	}
	if dir, err := os.UserConfigDir(); err == nil { // $XDG_CONFIG_HOME, or ~/.config
		s.Dirs = append(s.Dirs, filepath.Join(dir, "nvme"))
	}
	return s
}

// FileError reports a file of the store that can't be used.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string {
	if errors.Is(e.Err, fs.ErrPermission) { // as in another user's home, where HOME wasn't changed with the user
		return fmt.Sprintf("%s: permission denied; let this user read it, or set HOME if that is another user's", e.Path)
	}
	return fmt.Sprintf("%s: %v; repair it, or remove it for an identity made of the machine's", e.Path, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Errors of files.
var (
	errEmpty = errors.New("it is empty")
	errUUID  = errors.New("it doesn't hold a UUID, as 6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a")
	errZero  = errors.New("it holds the UUID of all zeroes, which names nobody")
)

// Load returns the identity, the same each time unless it is Unsaved. If a file exists but can't be used, the error is a
// *FileError, and if the machine's can't be read at the moment it is the system's: otherwise the host would lose
// reservations and access by getting another name.
func (s Store) Load() (Identity, error) {
	if id, err := s.saved(); err != nil || id.NQN != "" {
		return id, err
	}
	machine, err := firstLine(s.MachineID)
	if err != nil && !absent(err) { // what is saved now would be this host's name for good
		return Identity{}, fmt.Errorf("%w; the host's name is made of it: make it readable, or put a name into %s",
			err, filepath.Join(s.Dirs[0], nqnFile))
	}
	if err == nil && tellsMachine(machine) {
		// machine-id(5) asks not to show the identifier itself to others.
		id := nvme.HostID(uuid.NewSHA1(uuid.NameSpaceOID, []byte("nvmeof host "+machine)))
		return Identity{NQN: id.NQN(), ID: id, Source: s.MachineID}, nil
	}
	id := New()
	path, err := s.Save(id)
	if errors.Is(err, fs.ErrExist) { // another program was faster, or there is a link that leads nowhere
		if other, err := s.saved(); err != nil || other.NQN != "" {
			return other, err
		}
	}
	if id.Unsaved = err; err == nil {
		id.Source = path
	}
	return id, nil
}

// absent reports whether an error of reading a file says that there is none for this user, rather than that it can't be
// read at the moment. Where a container was to be given a file that its host doesn't have, there may be a directory.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EISDIR)
}

// tellsMachine reports whether a machine-id identifies one machine. Images that haven't booted yet all have the same
// one, or none (machine-id(5)).
func tellsMachine(id string) bool { return id != "uninitialized" && strings.Trim(id, "0") != "" }

// saved returns the identity in the files, or a zero one if there are none.
func (s Store) saved() (Identity, error) {
	for _, dir := range s.Dirs {
		id, err := load(dir)
		if err != nil || id.NQN != "" {
			return id, err
		}
	}
	return Identity{}, nil
}

// New returns an identity that no other host has.
func New() Identity {
	id := nvme.NewHostID()
	return Identity{NQN: id.NQN(), ID: id, Source: "generated"}
}

// load reads the files of a directory. Each of them implies the other if that is missing; a zero Identity means that
// there is neither.
func load(dir string) (id Identity, err error) {
	nqnPath, idPath := filepath.Join(dir, nqnFile), filepath.Join(dir, idFile)
	nqn, err := firstLine(nqnPath)
	if err == nil {
		id.NQN, id.Source = nqn, nqnPath
		if nqn == "" {
			return id, &FileError{nqnPath, errEmpty}
		}
		if err := nvme.CheckNQN(nqn); err != nil {
			return id, &FileError{nqnPath, err}
		}
		id.ID, _ = nvme.HostIDOf(nqn)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return id, &FileError{nqnPath, err}
	}
	text, err := firstLine(idPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if id.NQN != "" && id.ID.IsZero() {
			// An NQN of the other form has no UUID in it; derive one that is always the same for it.
			id.ID = nvme.HostID(uuid.NewSHA1(uuid.NameSpaceOID, []byte("nvmeof host "+id.NQN)))
		}
		return id, nil
	case err != nil:
		return id, &FileError{idPath, err}
	case text == "":
		return id, &FileError{idPath, errEmpty}
	}
	u, err := uuid.Parse(text)
	if err != nil {
		return id, &FileError{idPath, errUUID}
	}
	if id.ID = nvme.HostID(u); id.ID.IsZero() {
		return id, &FileError{idPath, errZero}
	}
	if id.NQN == "" {
		id.NQN, id.Source = id.ID.NQN(), idPath
	}
	return id, nil
}

func firstLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line), err
}

// Save writes an identity to both files, which must not exist yet, and returns the path of hostnqn. A crash leaves
// neither, only hostid, which implies the other, or both.
func (s Store) Save(id Identity) (string, error) {
	dir := s.Dirs[len(s.Dirs)-1]
	if err := statedir.MakeDir(dir, 0o755); err != nil {
		return "", err
	}
	nqnPath := filepath.Join(dir, nqnFile)
	if _, err := os.Lstat(nqnPath); err == nil {
		return "", &os.PathError{Op: "create", Path: nqnPath, Err: fs.ErrExist}
	}
	if err := statedir.CreateFile(filepath.Join(dir, idFile), []byte(id.ID.String()+"\n"), 0o644); err != nil {
		return "", err
	}
	return nqnPath, statedir.CreateFile(nqnPath, []byte(id.NQN+"\n"), 0o644)
}
