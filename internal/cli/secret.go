package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// HostSecrets are the secrets of one host: a line of a file of secrets.
type HostSecrets struct {
	NQN        string
	Host       *dhchap.Secret
	Controller *dhchap.Secret // nil if none
}

// String returns the line. It contains the secrets.
func (h *HostSecrets) String() string {
	line := h.NQN + " " + h.Host.Text()
	if h.Controller != nil {
		line += " " + h.Controller.Text()
	}
	return line
}

// SecretFile is a flag that names a file with secrets. An empty name, as from a variable that isn't set, is refused: it
// would act like no flag, and so mean no authentication.
type SecretFile string

// String returns the name of the file.
func (f *SecretFile) String() string { return string(*f) }

// Type is the name of the value in help.
func (*SecretFile) Type() string { return "file" }

// Set sets the name of the file.
func (f *SecretFile) Set(name string) error {
	if name == "" {
		return errors.New("it is empty: name a file, or leave the flag out, for no authentication")
	}
	*f = SecretFile(name)
	return nil
}

// maxSecrets bounds a file of secrets, in bytes.
const maxSecrets = 4 << 20

// exposed are the permissions that others must not have on a file of secrets: any for everybody, and writing for its
// group.
const exposed = 0o027

// errExposed is the cause if others could read or change a secret.
var errExposed = errors.New("others may read or change it")

// ReadSecret reads a file that holds one secret. what is the flag or field that names it. If the file is a pipe, it
// waits until ctx ends, and no longer than most unless that is 0. Errors don't contain the secret.
func ReadSecret(ctx context.Context, what, path string, most time.Duration) (*dhchap.Secret, error) {
	b, err := Leaving(ctx, 0, func() ([]byte, error) { return readSecrets(what, path, most) })
	if err != nil {
		return nil, err
	}
	lines := secretLines(b)
	if len(lines) != 1 || len(lines[0].words) != 1 {
		return nil, Say(dhchap.ErrSecret, "%s %s: want one line, with one secret; gen-dhchap-key makes such a file", what, path)
	}
	s, err := dhchap.ParseSecret(lines[0].words[0])
	if err != nil {
		return nil, Say(err, "%s %s:%d: %v", what, path, lines[0].number, err)
	}
	return s, nil
}

// ReadSecrets reads a file that holds the secrets of many hosts: each line has the NQN of a host, its secret and, if
// controllers must prove their identity to it, their secret for this host. It waits for pipes as ReadSecret does.
func ReadSecrets(ctx context.Context, what, path string, most time.Duration) ([]HostSecrets, error) {
	b, err := Leaving(ctx, 0, func() ([]byte, error) { return readSecrets(what, path, most) })
	if err != nil {
		return nil, err
	}
	return parseSecrets(what, path, b)
}

// parseSecrets is ReadSecrets for the file's content.
func parseSecrets(what, path string, b []byte) (all []HostSecrets, err error) {
	seen := map[string]bool{}
	for _, l := range secretLines(b) {
		at := fmt.Sprintf("%s %s:%d", what, path, l.number)
		if len(l.words) < 2 || len(l.words) > 3 {
			return nil, Say(dhchap.ErrSecret, "%s: want the NQN of a host, its secret and, if there is one, that of the controllers", at)
		}
		h := HostSecrets{NQN: l.words[0]}
		if err := nvme.CheckNQN(h.NQN); err != nil {
			return nil, Say(err, "%s: the first word is not the NQN of a host", at)
		}
		if seen[h.NQN] {
			return nil, Say(dhchap.ErrSecret, "%s: host %s is there twice", at, h.NQN)
		}
		seen[h.NQN] = true
		for i, to := range []**dhchap.Secret{&h.Host, &h.Controller}[:len(l.words)-1] {
			if *to, err = dhchap.ParseSecret(l.words[i+1]); err != nil {
				return nil, Say(err, "%s: host %s: %v", at, h.NQN, err)
			}
		}
		all = append(all, h)
	}
	return all, nil
}

type secretLine struct {
	number int
	words  []string
}

// secretLines returns the lines of a file of secrets, without comments, which begin with #.
func secretLines(b []byte) (all []secretLine) {
	number := 0
	for line := range bytes.Lines(b) {
		number++
		if words := strings.Fields(string(line)); len(words) > 0 && words[0][0] != '#' {
			all = append(all, secretLine{number, words})
		}
	}
	return all
}

// readSecrets reads a file of secrets. It refuses one that others may read, as ssh does with keys.
func readSecrets(what, path string, most time.Duration) ([]byte, error) {
	late := func(err error) error {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return Say(err, "%s %s: nobody has written to this pipe, and closed it, for %v; write to it, or name a regular file", what, path, most)
		}
		return FileError(what, path, err)
	}
	f, err := openSecrets(path, most)
	if err != nil {
		return nil, late(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, FileError(what, path, err)
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&exposed != 0 {
		return nil, Say(errExposed, "%s %s: others may read or change it (mode %04o), so it keeps no secret; chmod 600 %s",
			what, path, mode.Perm(), path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecrets+1))
	if err != nil {
		return nil, late(err)
	}
	if len(b) > maxSecrets {
		return nil, Say(dhchap.ErrSecret, "%s %s: it has more than %d bytes", what, path, maxSecrets)
	}
	return b, nil
}

// openSecrets opens a file of secrets. If it is a pipe, it waits until somebody writes to it, or has written; unless
// most is 0, the writer must close it within most.
func openSecrets(path string, most time.Duration) (*os.File, error) {
	if most == 0 {
		return os.Open(path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening it would wait, too
	if err != nil {
		return nil, err
	}
	if f.SetReadDeadline(time.Now().Add(most)) != nil {
		return f, nil //nolint:nilerr // it is no pipe
	}
	conn, err := f.SyscallConn()
	if err == nil { // a pipe that nobody has opened for writing yet reads as if it had ended
		err = conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil
		})
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// CreateSecret makes a file that only its owner may read; it must not exist yet. The file appears complete or not at
// all.
func CreateSecret(what, path, content string) error {
	if err := statedir.CreateFile(path, []byte(content), 0o600); err != nil {
		return CreateError(what, path, err)
	}
	return nil
}
