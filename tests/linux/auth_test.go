package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// authHost is the name of the host that authenticates itself.
const (
	authHostID = "11111111-2222-3333-4444-555555555555"
	authHost   = nvme.UUIDPrefix + authHostID
)

// authChoice is what is negotiated.
type authChoice struct {
	hash  nvme.AuthHash
	group nvme.DHGroup
	both  bool // the controller proves itself, too
}

// authChoices has every hash function and every group, except for the two large ones, which testAuth adds.
var authChoices = []authChoice{
	{nvme.AuthSHA256, nvme.DHNull, false}, {nvme.AuthSHA384, nvme.DHNull, true},
	{nvme.AuthSHA512, nvme.DHFFDHE2048, false}, {nvme.AuthSHA256, nvme.DHFFDHE3072, true}, {nvme.AuthSHA512, nvme.DHFFDHE4096, true},
}

// testAuth: DH-HMAC-CHAP with good secrets and bad ones, the kernel as the host and as the target.
func testAuth(t *testing.T, p *peer, transport string, slow bool) {
	// The host of Linux 6.1 accepts the options of nvme-cli and ignores them; the target's directory of a host shows
	// it.
	out := p.must(t, "cd /sys/kernel/config/nvmet/hosts && mkdir probe && ls probe && rmdir probe")
	if !strings.Contains(out, "dhchap_key") {
		t.Skipf("Debian's kernel %s is built without in-band authentication (NVME_AUTH and NVME_TARGET_AUTH are not set)", p.Image.Release)
	}
	choices := authChoices
	if slow { // an emulated processor takes minutes for them
		choices = append(choices, authChoice{nvme.AuthSHA384, nvme.DHFFDHE6144, false}, authChoice{nvme.AuthSHA512, nvme.DHFFDHE8192, true})
	}
	t.Run("host", func(t *testing.T) { testAuthHost(t, p, transport, choices) })
	t.Run("host-reauthenticates", func(t *testing.T) { testAuthAgain(t, p, transport) })
	t.Run("target", func(t *testing.T) { testAuthTarget(t, p, transport, choices) })
}

func newSecret(t testing.TB, h nvme.AuthHash) *dhchap.Secret {
	t.Helper()
	s, err := dhchap.Generate(h, 32)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// secretFile writes a file with one line.
func secretFile(t testing.TB, path, line string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// authServer is nvmetgt with a configuration that demands authentication.
type authServer struct {
	*server
	secrets, socket string
}

func serveAuth(t *testing.T, transport string, c authChoice, host, ctrl *dhchap.Secret) *authServer {
	t.Helper()
	dir := t.TempDir()
	s := &authServer{secrets: filepath.Join(dir, "secrets"), socket: filepath.Join(dir, "control")}
	s.know(t, host, ctrl)
	file := secretFile(t, filepath.Join(dir, "target.yaml"), fmt.Sprintf(`listen: ["%s://%s:4420"]
control: %s
subsystems:
- nqn: %s
  namespaces: [{volume: "mem:32MiB"}]
authentication:
  secrets: %s
  hashes: [%v]
  dh_groups: ["%v"]`, transport, hostAddr, s.socket, testNQN, s.secrets, c.hash, c.group))
	s.server = serveConfigured(t, file)
	return s
}

// know writes the file of secrets.
func (s *authServer) know(t testing.TB, host, ctrl *dhchap.Secret) {
	t.Helper()
	secretFile(t, s.secrets, fmt.Sprintf("%s %s %s", authHost, host.Text(), ctrl.Text()))
}

// asHost returns the options of nvme-cli for a host with secrets.
func asHost(secret, ctrl *dhchap.Secret) string {
	o := "--hostnqn " + authHost + " --hostid " + authHostID + " -i 1 -k 300"
	if secret != nil {
		o += " --dhchap-secret " + secret.Text()
	}
	if ctrl != nil {
		o += " --dhchap-ctrl-secret " + ctrl.Text()
	}
	return o
}

// testAuthHost: the kernel's host authenticates itself to nvmetgt.
func testAuthHost(t *testing.T, p *peer, transport string, choices []authChoice) {
	for _, c := range choices {
		t.Run(fmt.Sprintf("%v-%v-%v", c.hash, c.group, c.both), func(t *testing.T) {
			host, ctrl := newSecret(t, nvme.AuthSHA256), newSecret(t, nvme.AuthSHA512)
			serveAuth(t, transport, c, host, ctrl)
			asked := ctrl
			if !c.both {
				asked = nil
			}
			dev := p.connect(t, transport, asHost(host, asked))
			p.want(t, "dmesg", fmt.Sprintf("qid 0: authenticated with hash hmac(%v) dhgroup %v", c.hash, c.group))
			if c.both {
				p.want(t, "dmesg", "qid 0: controller authenticated")
			}
			p.verify(t, dev, "--size=2m --rw=randrw --bsrange=4k-64k")
			p.disconnect(t)
		})
	}
	c := authChoice{hash: nvme.AuthSHA256, group: nvme.DHFFDHE2048}
	host, ctrl := newSecret(t, nvme.AuthSHA256), newSecret(t, nvme.AuthSHA512)
	for _, x := range []struct {
		name       string
		host, ctrl *dhchap.Secret
	}{
		{"wrong-secret", newSecret(t, nvme.AuthSHA256), nil}, {"wrong-controller-secret", host, newSecret(t, nvme.AuthSHA256)}, {"no-secret", nil, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := serveAuth(t, transport, c, host, ctrl)
			out, err := p.try(t, fmt.Sprintf("nvme connect -t %s -a %s -s 4420 -n %s %s 2>&1; dmesg | grep 'qid 0'; ls /dev/nvme*n* 2>/dev/null || true",
				transport, hostAddr, testNQN, asHost(x.host, x.ctrl)))
			if strings.Contains(out, "/dev/nvme") && strings.Contains(out, "n1") {
				t.Errorf("it connected: %v\n%s", err, out)
			}
			t.Attr("printed", strings.ReplaceAll(strings.TrimSpace(invariable(out)), "\n", " | "))
			_, _ = p.try(t, "nvme disconnect -n "+testNQN)
			if x.host != nil && !strings.Contains(s.stderr.String(), "authentication failed") {
				t.Errorf("nvmetgt says nothing:\n%s", s.stderr.String())
			}
			p.must(t, "dmesg -C")
		})
	}
}

// testAuthAgain: the operator gives nvmetgt a new secret, and then the kernel, which reauthenticates while it works.
func testAuthAgain(t *testing.T, p *peer, transport string) {
	host, ctrl := newSecret(t, nvme.AuthSHA256), newSecret(t, nvme.AuthSHA512)
	s := serveAuth(t, transport, authChoice{hash: nvme.AuthSHA384, group: nvme.DHFFDHE2048}, host, ctrl)
	dev := p.connect(t, transport, asHost(host, ctrl))
	next := newSecret(t, nvme.AuthSHA384)
	s.know(t, next, ctrl)
	if out, err := exec.Command(filepath.Join(binDir, "nvmetgt"), "ctl", "--socket", s.socket, "reload").CombinedOutput(); err != nil {
		t.Fatalf("nvmetgt ctl reload: %v: %s", err, out)
	}
	p.must(t, "dmesg -C")
	p.must(t, fmt.Sprintf(`set -e
		fio --name=verify --filename=%s --direct=1 --ioengine=libaio --iodepth=4 --size=4m --rw=randrw --verify=crc32c --time_based --runtime=5 --output=/tmp/fio &
		echo %s > $(ls -d /sys/class/nvme/nvme*/dhchap_secret); wait $!`, dev, next.Text()))
	p.want(t, "for i in $(seq 300); do dmesg | grep -q 'qid 0: authenticated' && break; sleep 0.1; done; sleep 3; dmesg", "qid 0: authenticated with hash hmac(sha384) dhgroup ffdhe2048")
	if out := p.must(t, "dmesg"); strings.Contains(out, "failed") || strings.Contains(out, "error") {
		t.Errorf("the kernel says:\n%s", out)
	}
	p.verify(t, dev, "--size=2m --rw=randrw --bsrange=4k-64k")
	p.disconnect(t)
	if strings.Contains(s.stderr.String(), "authentication failed") {
		t.Error("nvmetgt refused an authentication")
	}
}

// testAuthTarget: nvmeinit authenticates itself to the kernel's target, which knows its host.
func testAuthTarget(t *testing.T, p *peer, transport string, choices []authChoice) {
	host, ctrl := newSecret(t, nvme.AuthSHA256), newSecret(t, nvme.AuthSHA512)
	p.export(t, transport)
	p.must(t, fmt.Sprintf(`set -e
		cd /sys/kernel/config/nvmet; mkdir hosts/%[1]s; echo %[3]s > hosts/%[1]s/dhchap_key; echo %[4]s > hosts/%[1]s/dhchap_ctrl_key
		echo 0 > subsystems/%[2]s/attr_allow_any_host; ln -s $PWD/hosts/%[1]s subsystems/%[2]s/allowed_hosts/`,
		authHost, testNQN, host.Text(), ctrl.Text()))
	t.Cleanup(func() {
		p.must(t, fmt.Sprintf("cd /sys/kernel/config/nvmet; rm subsystems/%[2]s/allowed_hosts/%[1]s; rmdir hosts/%[1]s", authHost, testNQN))
	})
	dir := t.TempDir()
	secret := secretFile(t, filepath.Join(dir, "secret"), host.Text())
	ctrlSecret := secretFile(t, filepath.Join(dir, "ctrl"), ctrl.Text())
	wrong := secretFile(t, filepath.Join(dir, "wrong"), newSecret(t, nvme.AuthSHA256).Text())
	connect := func(files ...string) (out, stderr string, code int) {
		args := []string{"bench", "-t", transport, "-a", p.Addr.String(), "-n", testNQN, "-q", authHost, "--hostid", authHostID,
			"-i", "2", "-k", "300", "--timeout", "170s", "--rw", "randrw", "--bs", "16k", "--iodepth", "4", "--runtime", "1s"}
		for i, f := range files {
			args = append(args, []string{"--dhchap-secret-file", "--dhchap-ctrl-secret-file"}[i], f)
		}
		return nvmeinit(t, args...)
	}
	for _, c := range choices {
		p.must(t, fmt.Sprintf("cd /sys/kernel/config/nvmet/hosts/%s; echo 'hmac(%v)' > dhchap_hash; echo %v > dhchap_dhgroup", authHost, c.hash, c.group))
		files := []string{secret}
		if c.both {
			files = append(files, ctrlSecret)
		}
		if out, stderr, code := connect(files...); code != 0 || !strings.Contains(out, "IOPS") {
			t.Errorf("%v, %v, both ways %v: exit code %d: %s%s", c.hash, c.group, c.both, code, out, stderr)
		}
	}
	p.noControllers(t)
	p.must(t, "dmesg -C; echo null > /sys/kernel/config/nvmet/hosts/"+authHost+"/dhchap_dhgroup")
	for name, files := range map[string][]string{"wrong secret": {wrong}, "wrong secret of the controller": {secret, wrong}, "no secret": nil} {
		_, stderr, code := connect(files...) // over RDMA, nvmet may disconnect before it has said why
		t.Logf("%s: %s", name, stderr)
		if code == 0 || !strings.Contains(stderr, "authentication") {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
		p.must(t, "dmesg -C") // it complains, rightly
	}
}
