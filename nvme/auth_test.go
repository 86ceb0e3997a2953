package nvme

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// authMessage is a message of testdata/auth.txt, captured between two Linux 6.12 kernels.
type authMessage struct {
	origin string // capture and queue
	send   bool
	cmd    *Command
	b      []byte
}

func authMessages(t testing.TB) (all []authMessage) {
	t.Helper()
	f, err := os.Open("testdata/auth.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		w := strings.Fields(sc.Text())
		all = append(all, authMessage{w[0], w[1] == "send", CommandAt(unhex(t, w[2])), unhex(t, w[3])})
	}
	if len(all) == 0 || sc.Err() != nil {
		t.Fatalf("%d messages, %v", len(all), sc.Err())
	}
	return all
}

// decodeAuth parses a message as its receiver would, and returns what AppendTo makes of the result.
func decodeAuth(b []byte, h AuthHash, g DHGroup) ([]byte, error) {
	kind, _, err := AuthHead(b)
	if err != nil {
		return nil, err
	}
	switch kind {
	case AuthNegotiateMessage:
		var m AuthNegotiate
		err := m.Parse(b)
		return m.AppendTo(nil), err
	case AuthFailure1Message, AuthFailure2Message:
		var m AuthFailure
		err := m.Parse(b)
		return m.AppendTo(nil), err
	case AuthChallengeMessage:
		var m AuthChallenge
		err := m.Parse(b)
		return m.AppendTo(nil), err
	case AuthReplyMessage:
		var m AuthReply
		err := m.Parse(b, h, g)
		return m.AppendTo(nil), err
	case AuthSuccess1Message:
		var m AuthSuccess1
		err := m.Parse(b, h)
		return m.AppendTo(nil), err
	case AuthSuccess2Message:
		var m AuthSuccess2
		err := m.Parse(b)
		return m.AppendTo(nil), err
	}
	return nil, AuthIncorrectMessage
}

// TestAuthGolden: messages that Linux sent are parsed, and appended as Linux wrote them, and so are the
// commands that carried them.
func TestAuthGolden(t *testing.T) {
	var chosen AuthChallenge
	for _, m := range authMessages(t) {
		kind, _, err := AuthHead(m.b)
		if err != nil {
			t.Fatal(err)
		}
		if kind == AuthChallengeMessage {
			if err := chosen.Parse(m.b); err != nil {
				t.Fatal(err)
			}
			if got := strings.HasPrefix(m.origin, "tcp-auth-"+chosen.DH.String()); !got || chosen.SEQNUM == 0 ||
				len(chosen.CVAL) != chosen.Hash.Size() || len(chosen.DHV) != chosen.DH.Size() {
				t.Errorf("%s: challenge %v, %v, S1 %d, C1 of %d, DH value of %d bytes", m.origin,
					chosen.Hash, chosen.DH, chosen.SEQNUM, len(chosen.CVAL), len(chosen.DHV))
			}
		}
		again, err := decodeAuth(m.b, chosen.Hash, chosen.DH)
		if err != nil || !bytes.Equal(again, m.b) {
			t.Errorf("%s %v: %v\nfrom %x\nto   %x", m.origin, kind, err, m.b, again)
		}
		var cmd Command
		if m.send {
			cmd.SetAuthSend(uint32(len(m.b)))
		} else {
			cmd.SetAuthReceive(4096) // the size of Linux's buffer for any message
		}
		cmd.SetCID(m.cmd.CID())
		*cmd.SGL1() = *m.cmd.SGL1()
		if cmd != *m.cmd {
			t.Errorf("%s %v: command\n%x, want\n%x", m.origin, kind, cmd, *m.cmd)
		}
	}
}

// TestAuthLayout checks fields that no capture has against the specification's figures.
func TestAuthLayout(t *testing.T) {
	failure := AuthFailure{TID: 0x1234, Explanation: AuthHashUnusable}
	if got, want := failure.AppendTo(nil), unhex(t, "00f1000034120104"); !bytes.Equal(got, want) {
		t.Errorf("AUTH_Failure1 is %x, want %x", got, want)
	}
	failure.ByHost = true
	if got, want := failure.AppendTo(nil), unhex(t, "00f0000034120104"); !bytes.Equal(got, want) {
		t.Errorf("AUTH_Failure2 is %x, want %x", got, want)
	}
	one := AuthSuccess1{TID: 5, Hash: AuthSHA384}
	if got, want := one.AppendTo(nil), unhex(t, "01030000050030000000000000000000"); !bytes.Equal(got, want) {
		t.Errorf("one-way Success1 is %x, want %x", got, want)
	}
	reply := AuthReply{TID: 5, RVAL: bytes.Repeat([]byte{9}, 32), DHV: []byte{1, 2, 3, 4}}
	want := unhex(t, "01020000050020000000040000000000"+strings.Repeat("09", 32)+strings.Repeat("00", 32)+"01020304")
	if got := reply.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("one-way Reply is %x, want %x", got, want)
	}
	second := AuthNegotiate{TID: 7, Hash: []AuthHash{AuthSHA512}, DH: []DHGroup{DHFFDHE3072}}
	b := second.AppendTo(nil)
	b[negotiateOffNAPD] = 2
	b = append(b[:negotiateHead:negotiateHead], append(make([]byte, authDescriptor), b[negotiateHead:]...)...)
	b[negotiateHead] = 0x77 // another protocol first
	var got AuthNegotiate
	if err := got.Parse(b); err != nil || got.TID != 7 || got.Hash[0] != AuthSHA512 || got.DH[0] != DHFFDHE3072 {
		t.Errorf("of two protocols: %+v, %v", got, err)
	}
}

// TestAuthMalformed: each invalid message gives the explanation that the specification has for it.
func TestAuthMalformed(t *testing.T) {
	negotiate := (&AuthNegotiate{Hash: AuthHashes(), DH: DHGroups()}).AppendTo(nil)
	challenge := (&AuthChallenge{
		Hash: AuthSHA256, DH: DHFFDHE2048, SEQNUM: 1, CVAL: make([]byte, 32), DHV: make([]byte, 256),
	}).AppendTo(nil)
	reply := (&AuthReply{RVAL: make([]byte, 32), DHV: make([]byte, 256)}).AppendTo(nil)
	success := (&AuthSuccess1{Hash: AuthSHA256, RVALID: true, RVAL: make([]byte, 32)}).AppendTo(nil)
	failure := (&AuthFailure{Explanation: AuthFailed}).AppendTo(nil)
	for _, c := range []struct {
		name    string
		message []byte
		at      int // byte that is changed; -1: cut by one
		to      byte
		want    AuthExplanation
	}{
		{"short negotiate", negotiate, -1, 0, AuthIncorrectPayload},
		{"no protocol", negotiate, negotiateOffNAPD, 0, AuthIncorrectPayload},
		{"more protocols than there are", negotiate, negotiateOffNAPD, 2, AuthIncorrectPayload},
		{"another protocol", negotiate, negotiateHead, 2, AuthProtocolUnusable},
		{"no hash functions", negotiate, negotiateHead + descriptorOffHALEN, 0, AuthIncorrectPayload},
		{"31 hash functions", negotiate, negotiateHead + descriptorOffHALEN, 31, AuthIncorrectPayload},
		{"no groups", negotiate, negotiateHead + descriptorOffDHLEN, 0, AuthIncorrectPayload},
		{"31 groups", negotiate, negotiateHead + descriptorOffDHLEN, 31, AuthIncorrectPayload},
		{"short challenge", challenge, -1, 0, AuthIncorrectPayload},
		{"unknown hash", challenge, chapOffValid, 4, AuthHashUnusable},
		{"unknown group", challenge, chapOffDHgID, 6, AuthDHGroupUnusable},
		{"value without a group", challenge, chapOffDHgID, 0, AuthIncorrectPayload},
		{"group without a value", challenge, chapOffDHVLEN + 1, 0, AuthIncorrectPayload},
		{"length of another hash", challenge, chapOffHL, 48, AuthIncorrectPayload},
		{"sequence number 0", challenge, chapOffSEQNUM, 0, AuthIncorrectPayload},
		{"short reply", reply, -1, 0, AuthIncorrectPayload},
		{"length of another hash", reply, chapOffHL, 31, AuthIncorrectPayload},
		{"reply without a value", reply, chapOffDHVLEN + 1, 0, AuthIncorrectPayload},
		{"CVALID 2", reply, chapOffValid, 2, AuthIncorrectPayload},
		{"short success", success, -1, 0, AuthIncorrectPayload},
		{"length of another hash", success, chapOffHL, 0, AuthIncorrectPayload},
		{"RVALID 255", success, chapOffValid, 255, AuthIncorrectPayload},
		{"short failure", failure, -1, 0, AuthIncorrectPayload},
		{"another reason", failure, 6, 2, AuthIncorrectPayload},
		{"another message", reply, authOffID, 9, AuthIncorrectMessage},
		{"another type", reply, authOffType, 2, AuthIncorrectMessage},
	} {
		b := bytes.Clone(c.message)
		if c.at < 0 {
			b = b[:len(b)-1]
		} else {
			b[c.at] = c.to
		}
		if _, err := decodeAuth(b, AuthSHA256, DHFFDHE2048); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for n := range authHead {
		if _, _, err := AuthHead(negotiate[:n]); !errors.Is(err, AuthIncorrectPayload) || !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	var r AuthReply
	if err := r.Parse(challenge, AuthSHA256, DHFFDHE2048); !errors.Is(err, AuthIncorrectMessage) {
		t.Errorf("a challenge instead of a reply: %v", err)
	}
}

// TestAuthNames: hash functions and groups are read by their names, including those that Linux uses.
func TestAuthNames(t *testing.T) {
	for _, h := range AuthHashes() {
		var a, b AuthHash
		if a.UnmarshalText([]byte(h.String())) != nil || b.UnmarshalText([]byte("hmac("+h.String()+")")) != nil || a != h || b != h {
			t.Errorf("%v becomes %v and %v", h, a, b)
		}
	}
	for _, g := range DHGroups() {
		var a DHGroup
		if a.UnmarshalText([]byte(g.String())) != nil || a != g || g.Known() != true || (g.Size() == 0) != (g == DHNull) {
			t.Errorf("%v becomes %v; %d bytes", g, a, g.Size())
		}
	}
	var h AuthHash
	if err := h.UnmarshalText([]byte("md5")); err == nil || !strings.Contains(err.Error(), "sha512 sha384 sha256") {
		t.Error(err)
	}
	for s, want := range map[string]string{
		AuthHash(9).String(): "hash 9", DHGroup(9).String(): "DH group 9", DHNull.String(): "null",
		AuthKind(0x0205).String(): "message of type 02h, identifier 05h", AuthReplyMessage.String(): "DH-HMAC-CHAP_Reply",
		AuthExplanation(0).Error(): "reason code explanation 00h", AuthFailed.Error(): "authentication failed",
	} {
		if s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

func FuzzAuthMessage(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, m := range authMessages(f) {
		f.Add(m.b)
	}
	f.Add(unhex(f, "00f1000034120104"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, g := range []DHGroup{DHNull, DHFFDHE2048} {
			once, err := decodeAuth(b, AuthSHA256, g)
			if err != nil {
				var e AuthExplanation
				if len(b) >= authHead && !errors.As(err, &e) {
					t.Fatalf("%v doesn't explain itself", err)
				}
				continue
			}
			twice, err := decodeAuth(once, AuthSHA256, g)
			if err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("%v\nfrom %s\nto   %s", err, hex.EncodeToString(once), hex.EncodeToString(twice))
			}
		}
	})
}
