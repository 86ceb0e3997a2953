package nvme

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// MaxNQN is the length of the longest NVMe Qualified Name in bytes, without the NUL that ends it.
const MaxNQN = 223

// DiscoveryNQN is the well-known name of every discovery subsystem.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// UUIDPrefix begins an NQN of the second form; a UUID follows.
const UUIDPrefix = "nqn.2014-08.org.nvmexpress:uuid:"

// ErrNQN is the cause of every error that CheckNQN and CheckSubNQN return.
var ErrNQN = errors.New("not an NVMe Qualified Name")

// CheckNQN returns an error that says what is wrong with an NQN (NVMe base, section "NVMe Qualified
// Names"), or nil. Both forms are valid: nqn.YYYY-MM.REVERSE-DOMAIN:STRING (the string may be
// missing, as in DiscoveryNQN), and UUIDPrefix with a UUID. The error doesn't say whose name it is:
// the caller should.
func CheckNQN(nqn string) error { return nqnError(nqn, cmp.Or(nqnTextFault(nqn), nqnFormFault(nqn))) }

// CheckSubNQN is CheckNQN for the name of a subsystem that a host connects to. Its form doesn't matter: other targets,
// among them Linux's, export subsystems by any name, and their hosts use them.
func CheckSubNQN(nqn string) error { return nqnError(nqn, nqnTextFault(nqn)) }

func nqnError(nqn, why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("%q is %w: %s", shorten(nqn), ErrNQN, why)
}

const nqnExample = "; an example is nqn.2024-01.com.example:disk1"

func nqnTextFault(nqn string) string {
	switch {
	case nqn == "":
		return "it is empty" + nqnExample
	case len(nqn) > MaxNQN:
		return fmt.Sprintf("it has %d bytes, the limit is %d", len(nqn), MaxNQN)
	case !utf8.ValidString(nqn):
		return "it is not UTF-8"
	case strings.ContainsFunc(nqn, func(r rune) bool { return r == ' ' || shapeless(r) }):
		return "it contains a space, or a control or invisible character"
	}
	return ""
}

func nqnFormFault(nqn string) string {
	if !strings.HasPrefix(nqn, "nqn.") {
		return `it must begin with "nqn."` + nqnExample
	}
	if id, ok := strings.CutPrefix(nqn, UUIDPrefix); ok {
		if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
			return "what follows uuid: must be a UUID such as 6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a"
		}
		return ""
	}
	date, rest, ok := strings.Cut(nqn[len("nqn."):], ".")
	if !ok || !isYearMonth(date) {
		return "after nqn. comes the year and month in which its domain was owned, as 2024-01, and a dot" + nqnExample
	}
	domain, _, _ := strings.Cut(rest, ":")
	if domain == "" || strings.HasPrefix(domain, ".") || strings.HasSuffix(domain, ".") || strings.Contains(domain, "..") {
		return "after the date comes a reversed domain name" + nqnExample
	}
	return ""
}

func isYearMonth(s string) bool {
	if len(s) != 7 || s[4] != '-' {
		return false
	}
	for i := range len(s) {
		if i != 4 && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return s[5:] >= "01" && s[5:] <= "12"
}

// shorten keeps an error message readable if a whole file was given as an NQN.
func shorten(s string) string {
	if len(s) > MaxNQN+1 {
		return s[:MaxNQN] + "…"
	}
	return s
}
