package dhchap

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The secrets and names of the connections in ../testdata/auth.txt.
const (
	labSecret     = "DHHC-1:01:Klyt2lDFBqajDAj6PuPkC5GkAPvTN6hKSspehqtPL5Ihp/yN:"
	labCtrlSecret = "DHHC-1:02:rUJS5iK66vsi/pg5gcJPTl6l/W+rtAIXGjV4F1eHcMC+Amdq0wuQP4wjQ/4A1Afa+6LbAQ==:"
	labHost       = "nqn.2014-08.org.nvmexpress:uuid:5601057c-1ea2-818d-bb46-7e8804614ada"
	labSub        = "nqn.lab:auth"
)

func parse(t testing.TB, text string) *Secret {
	t.Helper()
	s, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSecretText parses the secret in nvme-cli's manual, one of known bytes, and those of a Linux host.
func TestSecretText(t *testing.T) {
	for _, text := range []string{
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
		labSecret, labCtrlSecret,
	} {
		s := parse(t, text)
		if s.Text() != text {
			t.Errorf("%s became %s", text, s.Text())
		}
		if !parse(t, strings.TrimSuffix(text, ":")).Equal(s) {
			t.Errorf("%s without its last colon is another secret", text)
		}
	}
	known := make([]byte, 32)
	for i := range known {
		known[i] = byte(i)
	}
	if got := parse(t, "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"); !bytes.Equal(got.key, known) || got.hash != nvme.AuthSHA512 {
		t.Errorf("%x, %v", got.key, got.hash)
	}
}

func TestSecretMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "DHHC-1:"},
		{"DHHC-2:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", "doesn't begin with"},
		{"DHHC-1:04:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", "00, 01, 02 or 03"},
		{"DHHC-1:0/:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", "00, 01, 02 or 03"},
		{"DHHC-1:10:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", "00, 01, 02 or 03"},
		{"DHHC-1:0:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", "00, 01, 02 or 03"},
		{"DHHC-1:00", "a colon"},
		{"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaS:", "checksum"},
		{"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR::", "base64"},
		{"DHHC-1:00:AAECAwQFBgcICQoLDA0OD=AREhMUFRYXGBkaGxwdHh+KfiaR:", "base64"},
		{"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAR\nEhMUFRYXGBkaGxwdHh+KfiaR:", "base64"},
		{"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR\r:", "base64"},
		{"DHHC-1:00:AAECAwQF:", "6 bytes"},
		{"DHHC-1:00::", "0 bytes"},
	} {
		s, err := ParseSecret(c.text)
		if s != nil || !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
		if err != nil && len(c.text) > 20 && strings.Contains(err.Error(), c.text[10:20]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestGenerate(t *testing.T) {
	for _, h := range []nvme.AuthHash{0, nvme.AuthSHA256, nvme.AuthSHA384, nvme.AuthSHA512} {
		for _, n := range sizes {
			s, err := Generate(h, n)
			if err != nil || len(s.key) != n || !parse(t, s.Text()).Equal(s) {
				t.Errorf("%v, %d bytes: %v", h, n, err)
			}
			if o, _ := Generate(h, n); o.Equal(s) {
				t.Error("two secrets are the same")
			}
		}
	}
	if _, err := Generate(4, 32); err == nil {
		t.Error("an unknown hash function was taken")
	}
	if _, err := Generate(0, 33); err == nil {
		t.Error("33 bytes were taken")
	}
	const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
	if parse(t, "DHHC-1:00:"+key).Equal(parse(t, "DHHC-1:01:"+key)) {
		t.Error("a secret equals one that is transformed otherwise")
	}
	if s := parse(t, labSecret); s.Equal(nil) || (*Secret)(nil).Equal(s) || !(*Secret)(nil).Equal(nil) {
		t.Error("no secret equals a secret")
	}
}

// TestSecretHides: printing, logging or JSON encoding a secret doesn't reveal it.
func TestSecretHides(t *testing.T) {
	s := parse(t, labSecret)
	type holder struct {
		Name   string
		Secret *Secret
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+"\n", s, holder{"a", s}, &holder{"a", s})
	}
	fmt.Fprintln(&out, s.String())
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "secret", s, "in", holder{"a", s})
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "secret", s, "in", holder{"a", s})
	j, err := json.Marshal(holder{"a", s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(j)
	for _, form := range []string{"Klyt2lDF", hex.EncodeToString(s.key[:4]), fmt.Sprintf("%d %d", s.key[0], s.key[1])} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%s shows in\n%s", form, &out)
		}
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestResponses compares responses with values computed independently, by the formulas of the specification.
func TestResponses(t *testing.T) {
	const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
	plain, transformed := parse(t, "DHHC-1:00:"+key), parse(t, "DHHC-1:01:"+key)
	tx := Transaction{Hash: nvme.AuthSHA256, TID: 7,
		HostNQN: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555", SubNQN: "nqn.2024-01.io.test:s1"}
	challenge := make([]byte, 32)
	for i := range challenge {
		challenge[i] = byte(0x40 + i)
	}
	const seq = 0x01020304
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"transformed key", transformed.transform(tx.HostNQN), "6ce1e4ea31e8331a4fe5826bfde17a5cd386b8f0338748919e279ba6c55bf727"},
		{"R1 of 00", tx.HostResponse(plain, challenge, seq), "3626ee0a7a867cbff73dc26a0382f1093b6f689710491b3ceeebb394625349ac"},
		{"R1 of 01", tx.HostResponse(transformed, challenge, seq), "6b71842f26b7ab9f8a3dc84dae9e8a404bdaf1883d5135f84b6c9165ad096ea2"},
		{"R2 of 01", tx.ControllerResponse(transformed, challenge, seq), "fff7694b18c23cd76a972557e36966eabcdaca5753d2993ff91b92d668143d31"},
	} {
		if !bytes.Equal(c.got, unhex(t, c.want)) {
			t.Errorf("%s is %x, want %s", c.name, c.got, c.want)
		}
	}
}

// captured calls f with each message of a connection between two Linux 6.12 kernels.
func captured(t *testing.T, f func(origin string, kind nvme.AuthKind, message []byte)) {
	t.Helper()
	file, err := os.Open("../testdata/auth.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		if w := strings.Fields(sc.Text()); w[0] != "#" {
			b := unhex(t, w[3])
			kind, _, err := nvme.AuthHead(b)
			if err != nil {
				t.Fatal(err)
			}
			f(w[0], kind, b)
		}
	}
}

// TestCapturedResponses checks the responses that a Linux host and a Linux target sent each other.
func TestCapturedResponses(t *testing.T) {
	secret, ctrlSecret := parse(t, labSecret), parse(t, labCtrlSecret)
	var challenge nvme.AuthChallenge
	var reply nvme.AuthReply
	checked := 0
	captured(t, func(origin string, kind nvme.AuthKind, b []byte) {
		if !strings.HasPrefix(origin, "tcp-auth-null") {
			return
		}
		tx := Transaction{Hash: challenge.Hash, TID: challenge.TID, HostNQN: labHost, SubNQN: labSub}
		switch kind {
		case nvme.AuthChallengeMessage:
			if err := challenge.Parse(b); err != nil {
				t.Fatal(err)
			}
		case nvme.AuthReplyMessage:
			if err := reply.Parse(b, challenge.Hash, challenge.DH); err != nil {
				t.Fatal(err)
			}
			if want := tx.HostResponse(secret, challenge.CVAL, challenge.SEQNUM); !Equal(reply.RVAL, want) {
				t.Errorf("%s: R1 is %x, we compute %x", origin, reply.RVAL, want)
			}
			checked++
		case nvme.AuthSuccess1Message:
			var s nvme.AuthSuccess1
			if err := s.Parse(b, challenge.Hash); err != nil {
				t.Fatal(err)
			}
			if want := tx.ControllerResponse(ctrlSecret, reply.CVAL, reply.SEQNUM); !Equal(s.RVAL, want) {
				t.Errorf("%s: R2 is %x, we compute %x", origin, s.RVAL, want)
			}
			checked++
		}
	})
	if checked != 4 {
		t.Errorf("%d responses, want those of two queues", checked)
	}
}

// TestCapturedValues: the DH values that Linux sent are in our groups: each is a square modulo p,
// as is the generator, 2.
func TestCapturedValues(t *testing.T) {
	seen := map[nvme.DHGroup]int{}
	var c nvme.AuthChallenge
	captured(t, func(origin string, kind nvme.AuthKind, b []byte) {
		var v []byte
		var r nvme.AuthReply
		switch kind {
		case nvme.AuthChallengeMessage:
			if err := c.Parse(b); err != nil {
				t.Fatal(err)
			}
			v = c.DHV
		case nvme.AuthReplyMessage:
			if err := r.Parse(b, c.Hash, c.DH); err != nil {
				t.Fatal(err)
			}
			v = r.DHV
		}
		if len(v) == 0 {
			return
		}
		p := groupOf(c.DH).p
		half := new(big.Int).Rsh(p, 1)
		if new(big.Int).Exp(new(big.Int).SetBytes(v), half, p).Cmp(big.NewInt(1)) != 0 {
			t.Errorf("%s: a value that is not in %v", origin, c.DH)
		}
		seen[c.DH]++
	})
	for g := range groups {
		if seen[g] == 0 {
			t.Errorf("no value of %v", g)
		}
	}
}

// TestPrimes: the moduli end as RFC 7919, appendix A, prints them, and are safe primes.
func TestPrimes(t *testing.T) {
	for g, tail := range map[nvme.DHGroup]string{
		nvme.DHFFDHE2048: "886b423861285c97ffffffffffffffff", nvme.DHFFDHE3072: "25e41d2b66c62e37ffffffffffffffff",
		nvme.DHFFDHE4096: "c68a007e5e655f6affffffffffffffff", nvme.DHFFDHE6144: "a40e329cd0e40e65ffffffffffffffff",
		nvme.DHFFDHE8192: "d68c8bb7c5c6424cffffffffffffffff",
	} {
		p := groupOf(g).p
		text := p.Text(16)
		if p.BitLen() != 8*g.Size() || !strings.HasPrefix(text, "ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1") || !strings.HasSuffix(text, tail) {
			t.Errorf("%v: %d bits, %s…%s", g, p.BitLen(), text[:32], text[len(text)-32:])
		}
		if g <= nvme.DHFFDHE3072 && (!p.ProbablyPrime(1) || !new(big.Int).Rsh(p, 1).ProbablyPrime(1)) {
			t.Errorf("the modulus of %v is no safe prime", g)
		}
	}
}

// TestExchange: both sides arrive at the same key, in every group and with every hash function, and
// it is the one that math/big computes.
func TestExchange(t *testing.T) {
	for _, g := range nvme.DHGroups() {
		for _, h := range nvme.AuthHashes() {
			if g > nvme.DHFFDHE3072 && h != nvme.AuthSHA512 {
				continue // it takes a long time
			}
			a, b := NewExchange(g, h), NewExchange(g, h)
			if len(a.Public()) != g.Size() || g != nvme.DHNull && bytes.Equal(a.Public(), b.Public()) {
				t.Fatalf("%v: values of %d and %d bytes", g, len(a.Public()), len(b.Public()))
			}
			if g != nvme.DHNull && len(a.secret) < 256/8 {
				t.Errorf("%v: an exponent of %d bytes, want 256 bits at least", g, len(a.secret))
			}
			ka, errA := a.SessionKey(b.Public())
			kb, errB := b.SessionKey(a.Public())
			if errA != nil || errB != nil || !bytes.Equal(ka, kb) {
				t.Fatalf("%v: keys %x and %x, %v, %v", g, ka, kb, errA, errB)
			}
			if g == nvme.DHNull {
				if ka != nil {
					t.Errorf("a key without a group: %x", ka)
				}
				continue
			}
			p := a.group.p
			x := new(big.Int).SetBytes(a.secret)
			shared := new(big.Int).Exp(new(big.Int).SetBytes(b.Public()), x, p).FillBytes(make([]byte, g.Size()))
			sum := newHash(h)()
			sum.Write(shared)
			if !bytes.Equal(ka, sum.Sum(nil)) {
				t.Errorf("%v, %v: key %x, math/big comes to %x", g, h, ka, sum.Sum(nil))
			}
		}
	}
}

// TestExchangeValues: values that would reveal the secret, or are invalid, are refused; leading
// zeroes don't change a value.
func TestExchangeValues(t *testing.T) {
	x := NewExchange(nvme.DHFFDHE2048, nvme.AuthSHA256)
	p := x.group.p
	for name, v := range map[string]*big.Int{
		"0": new(big.Int), "1": big.NewInt(1), "p-1": new(big.Int).Sub(p, big.NewInt(1)), "p": p, "p+2": new(big.Int).Add(p, big.NewInt(2)),
	} {
		if k, err := x.SessionKey(v.Bytes()); !errors.Is(err, ErrValue) || k != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := x.SessionKey(nil); !errors.Is(err, ErrValue) {
		t.Errorf("no value: %v", err)
	}
	long, err := x.SessionKey(big.NewInt(5).FillBytes(make([]byte, 256)))
	short, err2 := x.SessionKey([]byte{5})
	if err != nil || err2 != nil || !bytes.Equal(long, short) {
		t.Errorf("5 and 5 with zeroes: %v, %v", err, err2)
	}
}

// TestAugment: with a session key, the response is to the HMAC of the challenge with that key.
func TestAugment(t *testing.T) {
	s, c := parse(t, labSecret), Challenge(nvme.AuthSHA384)
	a := Transaction{Hash: nvme.AuthSHA384, TID: 1, HostNQN: labHost, SubNQN: labSub}
	b := a
	b.SessionKey = []byte{1, 2, 3}
	m := hmac.New(sha512.New384, b.SessionKey)
	m.Write(c)
	augmented := m.Sum(nil)
	if len(c) != 48 || !bytes.Equal(a.HostResponse(s, augmented, 1), b.HostResponse(s, c, 1)) {
		t.Error("the host doesn't answer the augmented challenge")
	}
	if !bytes.Equal(a.ControllerResponse(s, augmented, 1), b.ControllerResponse(s, c, 1)) {
		t.Error("the controller doesn't answer the augmented challenge")
	}
	if bytes.Equal(a.HostResponse(s, c, 1), a.HostResponse(s, c, 2)) || bytes.Equal(a.HostResponse(s, c, 1), a.ControllerResponse(s, c, 1)) {
		t.Error("the sequence number, or the role, changes nothing")
	}
}

// TestChallenge: a challenge is as long as its hash, and always a new one.
func TestChallenge(t *testing.T) {
	for _, h := range nvme.AuthHashes() {
		if a, b := Challenge(h), Challenge(h); len(a) != h.Size() || bytes.Equal(a, b) {
			t.Errorf("%v: challenges %x and %x", h, a, b)
		}
	}
}

// TestSequence: sequence numbers begin anywhere, count up, and skip zero.
func TestSequence(t *testing.T) {
	sequence.Store(0) // as when the program starts
	a := Sequence()
	sequence.Store(0)
	if b := Sequence(); a == b {
		t.Errorf("both times the first is %d", a)
	}
	a = Sequence()
	if b := Sequence(); b != a+1 && b != 1 {
		t.Errorf("%d follows %d", b, a)
	}
	sequence.Store(0xfffffffe)
	if a, b := Sequence(), Sequence(); a != 0xffffffff || b != 1 {
		t.Errorf("%#x, then %d", a, b)
	}
}

func FuzzParseSecret(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(labSecret)
	f.Add(labCtrlSecret)
	f.Add("DHHC-1:00::")
	f.Add("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR\n:")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSecret(text)
		if err != nil {
			return
		}
		if again := s.Text(); again != text && again != text+":" {
			t.Fatalf("%q became %q", text, again)
		}
	})
}

func BenchmarkExchange(b *testing.B) {
	for _, g := range nvme.DHGroups() {
		b.Run(g.String(), func(b *testing.B) {
			for b.Loop() {
				x := NewExchange(g, nvme.AuthSHA256)
				if _, err := x.SessionKey(x.Public()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
