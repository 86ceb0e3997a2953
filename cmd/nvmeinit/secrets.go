package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// secretFlags names the files with the secrets of DH-HMAC-CHAP: everybody can see arguments.
type secretFlags struct {
	secret, ctrlSecret cli.SecretFile
	piped              map[cli.SecretFile]*dhchap.Secret // read from pipes, which give a secret once: each path needs it
}

const (
	secretFlag     = "dhchap-secret-file"
	ctrlSecretFlag = "dhchap-ctrl-secret-file" //nolint:gosec // the name of a flag
)

func (f *secretFlags) add(fl *pflag.FlagSet) {
	f.piped = map[cli.SecretFile]*dhchap.Secret{}
	fl.Var(&f.secret, secretFlag, "`FILE` with the secret of this host, for targets that demand authentication")
	fl.Var(&f.ctrlSecret, ctrlSecretFlag, "`FILE` with the secret that the target has to prove that it has")
}

// hangupPatience is how long SIGHUP waits for a pipe with a secret: meanwhile nobody sees that the connection is lost.
const hangupPatience = 5 * time.Second

// authentication reads the files; it returns nil if none is named. It waits for a pipe no longer than most, unless that
// is 0.
func (f *secretFlags) authentication(ctx context.Context, most time.Duration) (*host.Authentication, error) {
	if f.secret == "" && f.ctrlSecret == "" {
		return nil, nil //nolint:nilnil // no authentication is what the host takes nil for
	}
	if f.secret == "" {
		return nil, cli.Usage("--%s: only a host that authenticates itself can have the target do so: give --%s too", ctrlSecretFlag, secretFlag)
	}
	a := &host.Authentication{}
	var err error
	if a.Secret, err = f.read(ctx, secretFlag, f.secret, most); err != nil {
		return nil, err
	}
	if f.ctrlSecret != "" {
		if a.ControllerSecret, err = f.read(ctx, ctrlSecretFlag, f.ctrlSecret, most); err != nil {
			return nil, err
		}
	}
	if a.Secret.Equal(a.ControllerSecret) {
		return nil, cli.Usage("--%s and --%s hold the same secret: the target could pass as this host; make one for each", secretFlag, ctrlSecretFlag)
	}
	return a, nil
}

// read returns the secret of a file as it is now, or of a pipe as it was the first time.
func (f *secretFlags) read(ctx context.Context, flag string, file cli.SecretFile, most time.Duration) (*dhchap.Secret, error) {
	if s := f.piped[file]; s != nil {
		return s, nil
	}
	s, err := cli.ReadSecret(ctx, "--"+flag, file.String(), most)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(file.String()); err == nil && !info.Mode().IsRegular() {
		f.piped[file] = s
	}
	return s, nil
}

// onHangup delivers SIGHUP while ctx lasts if there are secrets to read again; otherwise it returns nil.
func (f *secretFlags) onHangup(ctx context.Context) <-chan os.Signal {
	if f.secret == "" {
		return nil
	}
	return cli.Hangups(ctx)
}

// reauthenticate reads the files again and reauthenticates this host. If it can't read them the connection stays as
// it is; any other failure ends it, and is returned.
func (f *connFlags) reauthenticate(ctx context.Context, w io.Writer, s *session) error {
	clear(f.secrets.piped)
	a, err := f.secrets.authentication(ctx, hangupPatience)
	if err == nil {
		err = s.Authenticate(ctx, a)
	}
	var e *host.ConnectError
	switch {
	case err == nil:
		fmt.Fprintln(w, "authenticated anew")
	case errors.As(err, &e) && ctx.Err() == nil:
		return cli.Say(err, "connection lost to %s://%s as this host was to authenticate itself anew: %s", e.Transport, e.Peer, f.reason(e))
	default:
		fmt.Fprintln(w, "not authenticated anew:", err)
	}
	return nil
}

// unauthenticated says why authentication failed, and what to do.
func (f *connFlags) unauthenticated(e *host.ConnectError) string {
	at := e.SubNQN
	switch {
	case f.secrets.secret == "":
		return fmt.Sprintf("subsystem %s demands authentication: give the secret that it knows of host %s in a file, with --%s", at, f.name, secretFlag)
	case errors.Is(e, nvme.AuthFailed):
		return fmt.Sprintf("%s; check that subsystem %s knows the secrets of these files, and for host %s",
			strings.TrimPrefix(e.Err.Error(), "nvme: "), at, f.name)
	}
	return strings.TrimPrefix(e.Err.Error(), "nvme: ")
}

const genKeyExample = `  nvmeinit gen-dhchap-key --output host.key
  nvmeinit connect -t tcp -a 127.0.0.1 --dhchap-secret-file host.key`
