package main

import (
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Where nvme-cli keeps the identity of a host, and what it is derived from elsewhere.
const (
	hostNQNFile   = "/etc/nvme/hostnqn"
	hostIDFile    = "/etc/nvme/hostid"
	machineIDFile = "/etc/machine-id"
)

// defaultHostID is the UUID of this host: nvme-cli's where it is set up, else one derived from
// the machine's identity, so that it stays the same from run to run, else a random one.
func defaultHostID() uuid.UUID {
	if id, err := uuid.Parse(readLine(hostIDFile)); err == nil {
		return id
	}
	if machine := readLine(machineIDFile); machine != "" {
		// machine-id(5) asks not to show the identifier itself to others.
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte("nvmeof host "+machine))
	}
	return uuid.New()
}

// defaultHostNQN is nvme-cli's name of this host, or one made of its UUID.
func defaultHostNQN(id uuid.UUID) string {
	if nqn := readLine(hostNQNFile); nvme.CheckNQN(nqn) == nil {
		return nqn
	}
	return nvme.UUIDPrefix + id.String()
}

func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
