package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTarget is a Target that is nothing but its configuration.
type fakeTarget struct {
	mu      sync.Mutex
	cfg     *config.Config
	version int
	fail    error
	drained []string // what was asked for
}

func (f *fakeTarget) Status() Status { return Status{Listen: []string{"tcp://192.0.2.1:4420"}} }

func (f *fakeTarget) Config() (*config.Config, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Clone(), strconv.Quote(strconv.Itoa(f.version))
}

func (f *fakeTarget) Apply(c *config.Config, tag string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if tag != "" && tag != strconv.Quote(strconv.Itoa(f.version)) {
		return ErrChanged
	}
	if f.fail != nil {
		return f.fail
	}
	f.cfg = c
	f.version++
	return nil
}

func (f *fakeTarget) Reload() error { return ErrNoFile }
func (f *fakeTarget) Save() error   { return ErrNoFile }

func (f *fakeTarget) Drain(_ context.Context, timeout *time.Duration) error {
	f.drained = append(f.drained, "default")
	if timeout != nil {
		f.drained[len(f.drained)-1] = timeout.String()
	}
	return f.fail
}

func (f *fakeTarget) Resume() { f.drained = append(f.drained, "resume") }

func TestDrain(t *testing.T) {
	f := newFake(t)
	c := serve(t, f)
	time := 1500 * time.Millisecond
	f.fail = errors.New("3 commands were cut off")
	if err := c.Drain(t.Context(), nil); err == nil || err.Error() != f.fail.Error() {
		t.Errorf("drain: %v", err)
	}
	f.fail = nil
	if err := errors.Join(c.Drain(t.Context(), &time), c.Resume(t.Context())); err != nil {
		t.Error(err)
	}
	if got := strings.Join(f.drained, " "); got != "default 1.5s resume" {
		t.Errorf("the target was asked for %s", got)
	}
}

func newFake(t *testing.T) *fakeTarget {
	t.Helper()
	c, err := config.Parse("test", []byte("subsystems: [{nqn: nqn.2026-11.org.example:a, namespaces: [{volume: mem:1MiB}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	return &fakeTarget{cfg: c}
}

func serve(t *testing.T, f Target) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	umask := unix.Umask(0)
	s, err := Serve(path, f)
	unix.Umask(umask)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != socketMode {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	return NewClient(path)
}

// TestAcceptFails: the socket serves on when the system couldn't accept a connection, for lack of something that isn't
// descriptors, or because that connection had failed by then.
func TestAcceptFails(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EPROTO} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := filepath.Join(t.TempDir(), "socket")
			s, err := Serve(path, newFake(t))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() // before the end of what answers its calls
			c, failed := NewClient(path), sandbox.FailOnce(t, unix.SYS_ACCEPT4, errno)
			for range 2 {
				if _, err := c.Status(t.Context()); err != nil || !failed() {
					t.Errorf("%v; a call had failed: %v", err, failed())
				}
			}
		})
	}
}

// Concurrent changes all take effect, each on top of the others.
func TestChangesAtOnce(t *testing.T) {
	f := newFake(t)
	c := serve(t, f)
	const n = 10
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			err := c.Change(t.Context(), func(cfg *config.Config) error {
				s := &cfg.Subsystems[0]
				s.Namespaces = append(s.Namespaces, config.Namespace{Volume: "mem:1MiB"})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := len(f.cfg.Subsystems[0].Namespaces); got != 1+n {
		t.Errorf("%d namespaces, want %d", got, 1+n)
	}
}

func TestClientErrors(t *testing.T) {
	f := newFake(t)
	c := serve(t, f)
	b, _, err := c.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.fail = cli.Say(unix.EMFILE, "volume x: %v", unix.EMFILE)
	short := c.Apply(t.Context(), b, "")
	f.fail = errors.New("volume x: it is gone")
	for _, x := range []struct {
		err  error
		want string
	}{
		{c.Apply(t.Context(), b, ""), "volume x: it is gone"},
		{c.Apply(t.Context(), b, `"7"`), ErrChanged.Error()},
		{c.Apply(t.Context(), []byte("nonsense: 1"), ""), `there is no key "nonsense"`},
		{c.Apply(t.Context(), bytes.Repeat([]byte{' '}, maxBody+1), ""), "too large"},
		{c.Save(t.Context()), ErrNoFile.Error()},
		{c.Reload(t.Context()), ErrNoFile.Error()},
		{NewClient("/no/such/socket").Save(context.Background()), "does nvmetgt run"},
		{short, "volume x: too many open files; raise the limit of open files"},
	} {
		if x.err == nil || !strings.Contains(x.err.Error(), x.want) {
			t.Errorf("%v, want %q", x.err, x.want)
		}
	}
	// What no target could do is distinguished from what this one can't do now.
	f.fail = cli.Usage("volume mem:x: it is none")
	for _, x := range []struct {
		err   error
		usage bool
	}{
		{c.Apply(t.Context(), b, ""), true},
		{c.Apply(t.Context(), []byte("nonsense: 1"), ""), true},
		{c.Apply(t.Context(), b, `"7"`), false},
		{c.Save(t.Context()), false},
		{NewClient("/no/such/socket").Save(context.Background()), false},
	} {
		var usage *cli.UsageError
		if errors.As(x.err, &usage) != x.usage {
			t.Errorf("%v is a mistake of who asked: %v, want %v", x.err, !x.usage, x.usage)
		}
	}
}

// TestForbiddenSocket: a user who may not use the socket isn't told to check whether the target
// runs.
func TestForbiddenSocket(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", unix.EACCES)}
	}
	c := &Client{socket: "/run/socket", http: http.Client{Transport: &http.Transport{DialContext: dial}}}
	err := c.Save(t.Context())
	if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "only root") || strings.Contains(err.Error(), "does nvmetgt run") {
		t.Errorf("%v", err)
	}
}

// TestNoConnection: who is short of something isn't asked whether the target runs, but told what helps.
func TestNoConnection(t *testing.T) {
	for cause, remedy := range map[error]string{
		os.NewSyscallError("socket", unix.EMFILE): "ulimit -n", unix.ENOSPC: "fs.epoll.max_user_watches", os.NewSyscallError("connect", unix.EAGAIN): "",
	} {
		dial := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: cause}
		}
		c := &Client{socket: "/run/socket", http: http.Client{Transport: &http.Transport{DialContext: dial}}}
		err := c.Save(t.Context())
		if !errors.Is(err, cause) || strings.Contains(err.Error(), "does nvmetgt run") || !strings.Contains(cli.Remedy(err), remedy) {
			t.Errorf("%v%s, want %q", err, cli.Remedy(err), remedy)
		}
	}
}

// Programs without YAML can use JSON, and get HTTP status codes.
func TestHTTP(t *testing.T) {
	f := newFake(t)
	h := newHandler(f)
	ask := func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if len(header) == 2 {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const body = `{"subsystems": [{"nqn": "nqn.2026-11.org.example:b", "namespaces": []}]}`
	for _, x := range []struct {
		w    *httptest.ResponseRecorder
		code int
	}{
		{ask("GET", "/v1/status", ""), http.StatusOK},
		{ask("PUT", "/v1/config", body, "If-Match", `"0"`), http.StatusNoContent},
		{ask("PUT", "/v1/config", body, "If-Match", `"0"`), http.StatusPreconditionFailed},
		{ask("PUT", "/v1/config", "{}"), http.StatusUnprocessableEntity},
		{ask("POST", "/v1/save", ""), http.StatusConflict},
		{ask("POST", "/v1/drain?timeout=1s", ""), http.StatusNoContent},
		{ask("POST", "/v1/drain?timeout=soon", ""), http.StatusBadRequest},
		{ask("POST", "/v1/drain?timeout=-1s", ""), http.StatusBadRequest},
		{ask("POST", "/v1/drain?timeout=0s", ""), http.StatusNoContent},
		{ask("POST", "/v1/resume", ""), http.StatusNoContent},
		{ask("POST", "/v1/reload", ""), http.StatusConflict},
		{ask("PUT", "/v1/config", strings.Repeat(" ", maxBody+1)), http.StatusRequestEntityTooLarge},
		{ask("DELETE", "/v1/config", ""), http.StatusMethodNotAllowed},
		{ask("GET", "/v2/status", ""), http.StatusNotFound},
	} {
		if x.w.Code != x.code {
			t.Errorf("%d %s, want %d", x.w.Code, x.w.Body, x.code)
		}
		var f failure
		if err := json.Unmarshal(x.w.Body.Bytes(), &f); x.code >= 400 && (err != nil || f.Error == "" ||
			x.w.Header().Get("Content-Type") != typeJSON) {
			t.Errorf("%d: %s %q, want an error as JSON", x.code, x.w.Header().Get("Content-Type"), x.w.Body)
		}
		if allow := x.w.Header().Get("Allow"); (x.code == http.StatusMethodNotAllowed) != (allow == "GET, HEAD, PUT") {
			t.Errorf("%d: Allow is %q", x.code, allow)
		}
	}
	if got := strings.Join(f.drained, " "); got != "1s 0s resume" {
		t.Errorf("the target was asked for %s, want nothing of what was refused", got)
	}
	if f.cfg.Subsystems[0].NQN != "nqn.2026-11.org.example:b" {
		t.Errorf("it is %+v", f.cfg)
	}
	w := ask("GET", "/v1/config", "")
	if c, err := config.Parse("body", w.Body.Bytes()); err != nil || c.Subsystems[0].NQN != f.cfg.Subsystems[0].NQN ||
		w.Header().Get("Content-Type") != "application/yaml" || w.Header().Get("ETag") != `"1"` {
		t.Errorf("%v; the configuration is %s, %v", err, w.Body, w.Header())
	}
	for path, want := range map[string]string{"/v1/config": "DELETE /v1/config: want GET, HEAD, PUT", "/v2": "DELETE /v2: there is no such path"} {
		var f failure
		if err := json.Unmarshal(ask("DELETE", path, "").Body.Bytes(), &f); err != nil || f.Error != want {
			t.Errorf("%v: the error is %q, want %q", err, f.Error, want)
		}
	}
	f.cfg.Pcap = "caf\xe9" // as a flag may say
	var why failure
	if w := ask("GET", "/v1/config", ""); w.Code != http.StatusConflict || json.Unmarshal(w.Body.Bytes(), &why) != nil || !strings.Contains(why.Error, "UTF-8") {
		t.Errorf("a configuration that YAML can't hold: %d %s", w.Code, w.Body)
	}
}

func TestServeWhereAnotherServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s, err := Serve(path, newFake(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(path, newFake(t)); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a second server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}) // takes no connection, as one of another user
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Serve(path, newFake(t)); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("where a program takes no connection: %v", err)
	}
	if _, err := Serve(filepath.Join(path, "x"), newFake(t)); err == nil {
		t.Error("a socket where there is no directory")
	}
}

// leftBehind returns the path of a socket that a program has left behind.
func leftBehind(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A socket that was left behind by a program that has ended is replaced.
func TestServeLeftBehind(t *testing.T) {
	path := leftBehind(t)
	s, err := Serve(path, newFake(t))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := NewClient(path).Status(t.Context()); err != nil || len(st.Listen) != 1 || st.Listen[0] != "tcp://192.0.2.1:4420" {
		t.Errorf("the status is %+v, %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseLeavesAnother: a program whose socket somebody removed doesn't remove, when it ends, that of another program
// which has its name since.
func TestCloseLeavesAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first, err := Serve(path, newFake(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Serve(path, newFake(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewClient(path).Status(t.Context()); err != nil {
		t.Errorf("when the first has ended: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
}

// TestCloseAfterEnd: a server that has ended by itself, and so doesn't have its socket open, removes nothing: another
// file may have the number that was the socket's.
func TestCloseAfterEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s, err := Serve(path, newFake(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.http.Close(); err != nil || !soon.Until(func() bool { return len(s.done) == 1 }) {
		t.Fatalf("it doesn't end: %v", err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if s.at, err = os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's file: %v", err)
	}
}

// TestCloseOutOfTurn: a program whose turn doesn't end doesn't hold up another one that ends.
func TestCloseOutOfTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s, err := Serve(path, newFake(t))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := takeTurn(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer turn()
	watch := soon.Start()
	defer watch.Stop()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := watch.Elapsed(); took > 2*time.Second {
		t.Errorf("it ends after %v", took)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestServeAtOnce: of programs that find a socket left behind at the same time one serves it, and the others learn that.
// Nothing else is left.
func TestServeAtOnce(t *testing.T) {
	for range 20 {
		path := leftBehind(t)
		const n = 8
		var all [n]*Server
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				s, err := Serve(path, newFake(t))
				if err != nil && !strings.Contains(err.Error(), "another program serves it") {
					t.Errorf("%v", err)
				}
				all[i] = s
			})
		}
		wg.Wait()
		serving := slices.DeleteFunc(all[:], func(s *Server) bool { return s == nil })
		if len(serving) != 1 {
			t.Errorf("%d programs serve the socket", len(serving))
		}
		if _, err := NewClient(path).Status(t.Context()); err != nil {
			t.Error(err)
		}
		if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
			t.Errorf("there are %v, %v", files, err)
		}
		for _, s := range serving {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestOtherServer: what isn't the interface of a target is reported with its answer, and a configuration of a later
// version as such.
func TestOtherServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case pathStatus:
			_, _ = w.Write([]byte("<html>"))
		case pathConfig:
			_, _ = w.Write([]byte("network:\n  hops: 3\n"))
		default:
			http.Error(w, "{}", http.StatusTeapot)
		}
	})}
	var over sync.WaitGroup
	over.Go(func() { _ = s.Serve(l) })
	defer over.Wait()
	defer s.Close()
	c := NewClient(path)
	if err := c.Save(t.Context()); err == nil || err.Error() != "the target answers 418 I'm a teapot" {
		t.Errorf("save: %v", err)
	}
	if _, err := c.Status(t.Context()); err == nil {
		t.Error("there is a status")
	}
	err = c.Change(t.Context(), func(*config.Config) error { t.Error("there is a configuration"); return nil })
	if want := `the target is of another version, use that for ctl: the target's configuration:2: there is no key "hops"`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("change: %v, want %s", err, want)
	}
}

// TestTargetEnds: that a target ended during a request is said as such, however far it got, and of nothing else.
func TestTargetEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const ended, none = ": the target ended before it answered: ", ": no answer: "
	answers := []struct{ says, want string }{
		{"", ended}, {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", ended}, {"220 another program\r\n", none},
	}
	var over sync.WaitGroup
	over.Go(func() {
		for _, answer := range answers {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte(answer.says))
			_ = c.Close()
		}
	})
	for _, answer := range answers {
		err := NewClient(path).Drain(t.Context(), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "control socket "+path+answer.want) || strings.Contains(err.Error(), "http://") {
			t.Errorf("after %q: %v", answer.says, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewClient(path).Drain(ctx, nil); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), ended) {
		t.Errorf("given up: %v", err)
	}
	over.Wait()
}

// busyTarget drains without end.
type busyTarget struct {
	*fakeTarget
	draining, over chan struct{}
}

func (b *busyTarget) Drain(context.Context, *time.Duration) error {
	close(b.draining)
	<-b.over
	return nil
}

// TestCloseWhileBusy: a request that takes long doesn't keep a server from closing, and its client is told.
func TestCloseWhileBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	b := &busyTarget{newFake(t), make(chan struct{}), make(chan struct{})}
	defer close(b.over)
	s, err := Serve(path, b)
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error)
	go func() { answer <- NewClient(path).Drain(t.Context(), nil) }()
	<-b.draining
	named := make(chan error, 1)
	s.http.RegisterOnShutdown(func() {
		_, err := os.Lstat(path)
		named <- err
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-named; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("while requests end the socket has its name: %v", err)
	}
	if err := <-answer; err == nil || !strings.Contains(err.Error(), "ended before it answered") {
		t.Errorf("the client is told %v", err)
	}
}

// A change that can't be made is reported, and nothing is applied.
func TestChangeFails(t *testing.T) {
	f := newFake(t)
	c := serve(t, f)
	none := errors.New("there is no such namespace")
	if err := c.Change(t.Context(), func(*config.Config) error { return none }); !errors.Is(err, none) {
		t.Errorf("the error is %v", err)
	}
	if err := c.Change(t.Context(), func(c *config.Config) error { c.Subsystems[0].NQN = "caf\xe9"; return nil }); err == nil || !strings.Contains(err.Error(), "it is not UTF-8") {
		t.Errorf("with a name that can't be written the error is %v", err)
	}
	f.fail = errors.New("volume x: it is gone")
	if err := c.Change(t.Context(), func(*config.Config) error { return nil }); err == nil || err.Error() != f.fail.Error() {
		t.Errorf("the error is %v", err)
	}
	if f.version != 0 {
		t.Errorf("%d configurations were applied", f.version)
	}
}

// TestServeNowhere: the error for a socket that can't be created says what to do about it.
func TestServeNowhere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		err  error
		says string
	}{
		filepath.Join(dir, "none", "socket"):         {unix.ENOENT, "make its directory first"},
		filepath.Join(dir, strings.Repeat("x", 108)): {unix.ENAMETOOLONG, "107 bytes at most"},
		file: {unix.EEXIST, "remove it, or choose another name"},
	} {
		_, err := Serve(path, &fakeTarget{})
		if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Serve("/sys/socket", &fakeTarget{}); err == nil || !strings.HasSuffix(err.Error(), ": choose another place") || strings.Contains(err.Error(), "bind") {
		t.Errorf("where no file can be made: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("a file that is no socket: %v", err)
	}
}

// A target that takes connections and answers nothing, as one that was stopped does, is reported, and not waited for
// without end.
func TestSilentTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient(path)
	c.patience = time.Millisecond
	never := func(*config.Config) error { t.Error("there is a configuration"); return nil }
	_, status := c.Status(t.Context())
	for _, err := range []error{status, c.Change(t.Context(), never)} {
		if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), path) {
			t.Errorf("the error is %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, errSilent) {
		t.Errorf("of an interrupted call: %v", err)
	}
}
