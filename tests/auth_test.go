package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// genKey has a program generate a secret, and writes it to a file.
func genKey(t testing.TB, program, path string, args ...string) string {
	t.Helper()
	r := start(t, program, append([]string{"gen-dhchap-key", "--output", path}, args...)...).result(t, cliTimeout)
	if r.code != 0 {
		t.Fatalf("gen-dhchap-key: %s", r.stderr)
	}
	b := readFile(t, path)
	return strings.TrimSpace(string(b))
}

// secrets are files with what a target and its host know.
type secrets struct {
	dir                 string
	file                string // the target's
	host, ctrl, wrong   string // the host's: one secret each
	hostText, ctrlTexts string
}

func makeSecrets(t testing.TB) *secrets {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	s := &secrets{dir: dir, file: in("secrets"), host: in("host"), ctrl: in("ctrl"), wrong: in("wrong")}
	s.hostText, s.ctrlTexts = genKey(t, "nvmeinit", s.host), genKey(t, "nvmetgt", s.ctrl, "--hmac", "3")
	genKey(t, "nvmetgt", s.wrong, "--hmac", "0", "--key-length", "48")
	s.know(t, s.hostText)
	return s
}

// know gives the target's file another secret of the host.
func (s *secrets) know(t testing.TB, host string) {
	t.Helper()
	writeText(t, s.file, "# one host\n"+oneHost+" "+host+" "+s.ctrlTexts+"\n")
}

// hide fails the test if a text contains one of the secrets.
func (s *secrets) hide(t testing.TB, what, text string) {
	t.Helper()
	for _, x := range []string{s.hostText, s.ctrlTexts} {
		if strings.Contains(text, x[10:30]) {
			t.Errorf("a secret shows in %s:\n%s", what, text)
		}
	}
}

// asHost returns the arguments of a host with the files of its secret and the controller's.
func asHost(host string, files ...string) []string {
	args := []string{"-n", testNQN, "-q", host, "-i", "2"}
	for i, f := range files {
		args = append(args, []string{"--dhchap-secret-file", "--dhchap-ctrl-secret-file"}[i], f)
	}
	return args
}

// TestAuthenticationPrograms: both programs with good secrets and bad ones, over both transports; errors say what to
// do, and no secret shows up anywhere.
func TestAuthenticationPrograms(t *testing.T) {
	t.Parallel()
	s := makeSecrets(t)
	tgt := startTarget(t, "--volume", "mem:16MiB", "--dhchap-secrets", s.file, "--log-level", "debug")
	for _, transport := range transports {
		for _, files := range [][]string{{s.host}, {s.host, s.ctrl}} {
			tgt.must(t, cliTimeout, transport, "connect", asHost(oneHost, files...)...)
			tgt.must(t, cliTimeout, transport, "bench", append(asHost(oneHost, files...),
				args("--rw randrw --verify crc32c --size 4MiB --runtime 500ms --iodepth 8")...)...)
		}
		refuseAuthentication(t, tgt, transport, s)
	}
	hold := tgt.startInit(t, "tcp", "connect", append(asHost(oneHost, s.host), "--hold")...)
	waitText(t, &hold.stderr, "holding the connection")
	for _, p := range []*program{tgt.program, hold} {
		for _, f := range []string{"cmdline", "environ"} {
			b := readFile(t, fmt.Sprintf("/proc/%d/%s", p.pid(), f))
			s.hide(t, f, string(b))
		}
	}
	hold.release(t)
	for _, want := range []string{`msg="host authenticated"`, "dhgroup=ffdhe3072 bidirectional=true", `msg="authentication failed"`, "has no secret here"} {
		if !strings.Contains(tgt.stderr.String(), want) {
			t.Errorf("no %s in the log", want)
		}
	}
	s.hide(t, "nvmetgt's log", tgt.stderr.String())
	tgt.stop(t)
}

// refuseAuthentication connects with wrong secrets.
func refuseAuthentication(t *testing.T, tgt *targetProgram, transport string, s *secrets) {
	t.Helper()
	for _, x := range []struct {
		name string
		args []string
		want string
	}{
		{"none", asHost(oneHost), "demands authentication: give the secret that it knows of host " + oneHost},
		{"wrong", asHost(oneHost, s.wrong), "the controller says: authentication failed; check that subsystem"},
		{"wrong controller", asHost(oneHost, s.host, s.wrong), "the controller doesn't know its secret: authentication failed"},
		{"unknown host", asHost(twoHost, s.host), "doesn't admit host " + twoHost},
		{"controller alone", append(asHost(oneHost), "--dhchap-ctrl-secret-file", s.ctrl), "give --dhchap-secret-file too"},
		{"the same", asHost(oneHost, s.host, s.host), "hold the same secret"},
		{"no file", asHost(oneHost, s.host+".not"), "no such file"},
	} {
		r := tgt.run(t, cliTimeout, transport, "connect", x.args...)
		if r.code == 0 || !strings.Contains(r.stderr, x.want) {
			t.Errorf("%s, %s: exit code %d, no %q in: %s", transport, x.name, r.code, x.want, r.stderr)
		}
		s.hide(t, "nvmeinit's errors", r.stderr)
	}
}

// TestSecretsOfOthers: a file of secrets that others may read is refused.
func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	s := makeSecrets(t)
	if err := os.Chmod(s.file, 0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, "nvmetgt", "serve", "--volume", "mem:1MiB", "--dhchap-secrets", s.file).result(t, cliTimeout)
	if r.code == 0 || !strings.Contains(r.stderr, "--dhchap-secrets "+s.file+": others may read or change it (mode 0644)") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// TestNoSecrets: a target that knows no secret lets nobody in, and says so.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "secrets")
	writeText(t, empty, "# none yet\n")
	tgt := startTarget(t, "--volume", "mem:1MiB", "--dhchap-secrets", empty)
	const said = "no host can connect"
	waitText(t, &tgt.stderr, said)
	if r := tgt.run(t, cliTimeout, "tcp", "connect", asHost(oneHost)...); r.code == 0 {
		t.Error("a host connected")
	}
	tgt.stop(t)
	if n := strings.Count(tgt.stderr.String(), said); n != 1 {
		t.Errorf("it is said %d times: %s", n, tgt.stderr.String())
	}
}

// liveAuth is a target whose operator changes its secrets, in a separate file, while oneHost uses it.
type liveAuth struct {
	*configured
	*secrets
	open string   // the configuration without authentication
	who  []string // flags of oneHost
}

// startLiveAuth starts one that doesn't demand authentication yet.
func startLiveAuth(t *testing.T) *liveAuth {
	t.Helper()
	s := makeSecrets(t)
	c := serveSubsystems(t, fmt.Sprintf(`
- nqn: %s
  namespaces: [{volume: "mem:16MiB"}]
`, diskNQN))
	return &liveAuth{configured: c, secrets: s, open: string(readFile(t, c.file)), who: []string{"-n", diskNQN, "-q", oneHost, "-i", "2"}}
}

// demand makes the target demand authentication.
func (l *liveAuth) demand(t *testing.T) {
	t.Helper()
	writeText(t, l.configured.file, l.open+fmt.Sprintf(`authentication:
  secrets: %s
  hashes: [sha384]
  dh_groups: [ffdhe2048]
`, l.secrets.file))
	l.change(t, "reload")
}

// withSecret returns the flags of oneHost with its secret.
func (l *liveAuth) withSecret() []string {
	return append(slices.Clone(l.who), "--dhchap-secret-file", l.host)
}

// hold has oneHost connect and stay.
func (l *liveAuth) hold(t *testing.T, transport string, flags []string) *program {
	t.Helper()
	p := l.startInit(t, transport, "connect", append(slices.Clone(flags), "--hold")...)
	waitText(t, &p.stderr, "holding the connection")
	return p
}

// refusesReload: the target refuses what its file says, with a reason, and stays as it was.
func (l *liveAuth) refusesReload(t *testing.T, reasons ...string) {
	t.Helper()
	before := l.change(t, "config")
	r := l.ctl(t, "reload")
	for _, reason := range reasons {
		if r.code == 0 || !strings.Contains(r.stderr, reason) {
			t.Errorf("exit code %d, no %q in: %s", r.code, reason, r.stderr)
		}
	}
	if after := l.change(t, "config"); after != before {
		t.Errorf("the configuration changed to\n%s", after)
	}
}

// TestAuthenticationLive: the operator gives a running target new secrets. A connected host stays connected,
// reauthenticates when told to, and can only connect with the new secret.
func TestAuthenticationLive(t *testing.T) {
	t.Parallel()
	l := startLiveAuth(t)
	l.hold(t, "tcp", l.who)
	l.demand(t)
	var held []*program
	for _, transport := range transports {
		if r := l.run(t, cliTimeout, transport, "connect", l.who...); r.code == 0 {
			t.Errorf("%s: without a secret it connects", transport)
		}
		held = append(held, l.hold(t, transport, l.withSecret()))
	}

	next := genKey(t, "nvmetgt", filepath.Join(l.dir, "next"))
	l.know(t, next)
	l.change(t, "reload")
	if r := l.run(t, cliTimeout, "tcp", "connect", l.withSecret()...); r.code == 0 {
		t.Error("the old secret still works")
	}
	writeText(t, l.host, next+"\n")
	l.must(t, cliTimeout, "rdma", "connect", l.withSecret()...)
	for _, p := range held {
		p.signal(syscall.SIGHUP)
		waitText(t, &p.stderr, "authenticated anew")
		if strings.Contains(p.stderr.String(), "not authenticated") {
			t.Error(p.stderr.String())
		}
	}
	// The host that connected in between is gone, which the target may notice later.
	eventually(t, cliTimeout, "only those that stay", func() bool { return len(l.status(t).Subsystems[0].Controllers) <= 3 })
	controllers, authenticated := l.status(t).Subsystems[0].Controllers, 0
	for _, ctrl := range controllers {
		if a := ctrl.Authentication; a != nil && a.Hash == "sha384" && a.DHGroup == "ffdhe2048" && !a.Bidirectional {
			authenticated++
		}
	}
	if n := len(controllers); n != 3 || authenticated != 2 {
		t.Errorf("%d controllers, %d of them authenticated; want 3 and 2", n, authenticated)
	}
	l.stop(t)
}

// TestAuthenticationStale: a host that is told to reauthenticate, but has a secret that the target doesn't know, learns
// that this is the reason, although the target ends the connection at once, maybe before its answer has arrived.
func TestAuthenticationStale(t *testing.T) {
	t.Parallel()
	l := startLiveAuth(t)
	l.demand(t)
	var held []*program
	for _, transport := range transports {
		held = append(held, l.hold(t, transport, l.withSecret()))
	}
	stale := genKey(t, "nvmetgt", filepath.Join(l.dir, "stale"))
	writeText(t, l.host, stale+"\n")
	for _, p := range held {
		p.signal(syscall.SIGHUP)
		code := p.wait(t, cliTimeout)
		last := lastLine(p.stderr.String())
		if code != exitFailure || !strings.Contains(last, "to authenticate itself anew: authentication") || !strings.Contains(last, "check") || !strings.Contains(last, "the secrets") {
			t.Errorf("exit code %d: %s", code, last)
		}
	}
	l.stop(t)
}

// TestAuthenticationRefusedLive: a change of secrets that isn't possible changes nothing, and disconnects nobody.
func TestAuthenticationRefusedLive(t *testing.T) {
	t.Parallel()
	l := startLiveAuth(t)
	l.demand(t)
	before := l.change(t, "config")
	writeText(t, l.configured.file, l.open+fmt.Sprintf(`authentication:
  secrets: %s
  hosts:
  - {nqn: %s, secret_file: %s}
`, l.secrets.file, oneHost, l.host))
	l.refusesReload(t, "authentication.hosts[0].nqn "+oneHost, l.secrets.file)
	writeText(t, l.configured.file, before)
	if err := os.Remove(l.secrets.file); err != nil {
		t.Fatal(err)
	}
	l.refusesReload(t, "authentication.secrets "+l.secrets.file+": no such file")
	held := l.hold(t, "tcp", l.withSecret())
	forget(t, l)
	writeText(t, l.configured.file, strings.Replace(before, "listen:", "listen:\n- tcp://192.0.2.1:4420", 1))
	l.refusesReload(t, "192.0.2.1")
	if n := len(l.status(t).Subsystems[0].Controllers); n != 1 {
		t.Errorf("%d controllers after a change that couldn't be made", n)
	}
	held.release(t)
	l.stop(t)
}

// TestAuthenticationRevoked: a host whose secret is removed is disconnected, and so is one that connected before
// secrets were demanded and has none.
func TestAuthenticationRevoked(t *testing.T) {
	t.Parallel()
	l := startLiveAuth(t)
	held := []*program{l.hold(t, "tcp", l.who)}
	l.demand(t)
	for _, transport := range transports {
		held = append(held, l.hold(t, transport, l.withSecret()))
	}
	forget(t, l)
	l.change(t, "reload")
	for _, p := range held {
		if p.wait(t, cliTimeout); !strings.Contains(p.stderr.String(), "lost") {
			t.Errorf("a host without a secret stays: %s", p.stderr.String())
		}
	}
	l.stop(t)
}

// forget makes the file of secrets contain only another host.
func forget(t *testing.T, l *liveAuth) {
	t.Helper()
	secret := genKey(t, "nvmetgt", filepath.Join(l.dir, "another"))
	writeText(t, l.secrets.file, "nqn.2026-11.org.example:another "+secret+"\n")
}
