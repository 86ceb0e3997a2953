package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// The JSON that nvmetcli saves: the directories of Linux nvmet's configfs.
type (
	nvmetcli struct {
		Ports      []nvmetPort      `json:"ports"`
		Subsystems []nvmetSubsystem `json:"subsystems"`
		Hosts      []nvmetHost      `json:"hosts"`
	}
	nvmetHost struct {
		NQN     string `json:"nqn"`
		Key     string `json:"dhchap_key"`
		CtrlKey string `json:"dhchap_ctrl_key"`
		Hash    string `json:"dhchap_hash"`
		DHGroup string `json:"dhchap_dhgroup"`
	}
	nvmetPort struct {
		Addr struct {
			TrType  string `json:"trtype"`
			TrAddr  string `json:"traddr"`
			TrSvcID string `json:"trsvcid"`
		} `json:"addr"`
		ANAGroups []struct {
			GrpID looseID `json:"grpid"`
			ANA   struct {
				State string `json:"state"`
			} `json:"ana"`
		} `json:"ana_groups"`
		Referrals  []json.RawMessage `json:"referrals"`
		Subsystems []string          `json:"subsystems"`
	}
	nvmetSubsystem struct {
		NQN          string            `json:"nqn"`
		AllowedHosts []string          `json:"allowed_hosts"`
		Attr         map[string]string `json:"attr"`
		Namespaces   []nvmetNamespace  `json:"namespaces"`
	}
	nvmetNamespace struct {
		NSID   uint32 `json:"nsid"`
		Enable int    `json:"enable"`
		Device struct {
			Path  string `json:"path"`
			UUID  string `json:"uuid"`
			NGUID string `json:"nguid"`
		} `json:"device"`
		// Versions of nvmetcli differ in where they put it.
		ANAGrpID looseID `json:"ana_grpid"`
		ANA      struct {
			GrpID looseID `json:"grpid"`
		} `json:"ana"`
	}
)

// looseID is a number that may be written as a text.
type looseID uint32

// UnmarshalJSON reads one.
func (n *looseID) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 32)
	if err != nil {
		return fmt.Errorf("%s: want a number", b)
	}
	*n = looseID(v)
	return nil
}

// Import is what FromNVMeTCLI makes.
type Import struct {
	Config *Config
	Notes  []string // what has no counterpart here, and is left out: a line each
	// Secrets are those of hosts, for a file that Config.Authentication.Secrets names.
	Secrets []cli.HostSecrets
}

// FromNVMeTCLI reads what Linux's nvmetcli saved. The Config is valid. secrets is the name of the
// file that the secrets of hosts will be in; empty: they are left out.
func FromNVMeTCLI(name string, b []byte, secrets string) (*Import, error) {
	var in nvmetcli
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, jsonError(name, b, err)
	}
	if len(in.Subsystems) == 0 {
		return nil, &FieldError{File: name, Field: "subsystems", Err: errors.New("there are none: is this a file that nvmetcli saved?")}
	}
	im := importer{c: &Config{}}
	if err := im.hosts(in.Hosts, secrets); err != nil {
		return nil, &FieldError{File: name, Err: err}
	}
	for i := range in.Ports {
		im.port(&in.Ports[i], len(in.Subsystems))
	}
	for i := range in.Subsystems {
		im.subsystem(&in.Subsystems[i])
	}
	if err := im.c.Validate(); err != nil {
		var fe *FieldError
		if errors.As(err, &fe) {
			fe.File = name
		}
		return nil, err
	}
	return &Import{im.c, im.notes, im.secrets}, nil
}

// jsonError gives a JSON error its line.
func jsonError(name string, b []byte, err error) error {
	fe := &FieldError{File: name, Err: err}
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		fe.Line = 1 + strings.Count(string(b[:min(int(syntax.Offset), len(b))]), "\n")
	case errors.As(err, &typ):
		fe.Line = 1 + strings.Count(string(b[:min(int(typ.Offset), len(b))]), "\n")
		fe.Field, fe.Err = typ.Field, fmt.Errorf("want %s, not %s", typ.Type, typ.Value)
	}
	return fe
}

type importer struct {
	c       *Config
	notes   []string
	secrets []cli.HostSecrets
}

func (im *importer) note(format string, a ...any) {
	im.notes = append(im.notes, fmt.Sprintf(format, a...))
}

// hosts takes over the secrets of hosts, and what they may be used with.
func (im *importer) hosts(hosts []nvmetHost, file string) error {
	a := &Authentication{Secrets: file, Optional: true} // there, a host without a secret just connects
	for _, h := range hosts {
		switch {
		case h.Key == "" && h.CtrlKey == "":
			continue
		case h.Key == "" || file == "":
			im.note("host %s: its secrets are left out; import with --secrets FILE writes those that authenticate it to a file", h.NQN)
			continue
		}
		s := cli.HostSecrets{NQN: h.NQN}
		var err error
		if s.Host, err = dhchap.ParseSecret(h.Key); err == nil && h.CtrlKey != "" {
			s.Controller, err = dhchap.ParseSecret(h.CtrlKey)
		}
		if err != nil {
			return fmt.Errorf("host %s: %w", h.NQN, err)
		}
		im.secrets = append(im.secrets, s)
		var hash nvme.AuthHash
		if hash.UnmarshalText([]byte(h.Hash)) == nil && !slices.Contains(a.Hashes, hash) {
			a.Hashes = append(a.Hashes, hash)
		}
		var group nvme.DHGroup
		if group.UnmarshalText([]byte(h.DHGroup)) == nil && !slices.Contains(a.DHGroups, group) {
			a.DHGroups = append(a.DHGroups, group)
		}
	}
	if len(im.secrets) > 0 {
		im.c.Authentication = a
	}
	return nil
}

func (im *importer) port(p *nvmetPort, subsystems int) {
	text := p.Addr.TrType + "://" + p.Addr.TrAddr
	if strings.Contains(p.Addr.TrAddr, ":") {
		text = p.Addr.TrType + "://[" + p.Addr.TrAddr + "]"
	}
	if p.Addr.TrSvcID != "" {
		text += ":" + p.Addr.TrSvcID
	}
	e, err := cli.ParseEndpoint(text)
	if err != nil {
		im.note("port %v: left out", err)
		return
	}
	im.c.Listen = append(im.c.Listen, e)
	for _, g := range p.ANAGroups {
		var state ANAState
		if err := state.UnmarshalText([]byte(g.ANA.State)); err != nil {
			im.note("port %s: ANA group %d: state %v: it is optimized here", e, g.GrpID, err)
		} else if state != ANAState(nvme.ANAOptimized) {
			im.c.SetANA(uint32(g.GrpID), nvme.ANAState(state), &e)
		}
	}
	if len(p.Referrals) > 0 {
		im.note("port %s: its %d referrals are left out", e, len(p.Referrals))
	}
	if len(p.Subsystems) < subsystems {
		im.note("port %s: it serves every subsystem here, not only %s", e, strings.Join(p.Subsystems, ", "))
	}
}

func (im *importer) subsystem(s *nvmetSubsystem) {
	out := Subsystem{NQN: s.NQN, Serial: s.Attr["serial"], Model: s.Attr["model"], Namespaces: []Namespace{}}
	if s.Attr["allow_any_host"] != "1" {
		out.Hosts = s.AllowedHosts
		if len(out.Hosts) == 0 {
			im.note("subsystem %s: it allows no host there; here nobody is refused unless hosts are named", s.NQN)
		}
	}
	if v := s.Attr["cntlid_max"]; v != "" && v != strconv.Itoa(0xffef) {
		im.note("subsystem %s: the range of controller IDs is left out", s.NQN)
	}
	for _, n := range s.Namespaces {
		if n.Enable == 0 {
			im.note("subsystem %s: namespace %d is not enabled, and left out", s.NQN, n.NSID)
			continue
		}
		ns := Namespace{NSID: n.NSID, Volume: n.Device.Path}
		if id, err := uuid.Parse(n.Device.UUID); err == nil {
			ns.UUID = &id
		}
		if g := uint32(max(n.ANAGrpID, n.ANA.GrpID)); g != 1 {
			ns.ANAGroup = g
		}
		if strings.Trim(n.Device.NGUID, "0-") != "" {
			ns.NGUID = new(NGUID)
			if err := ns.NGUID.UnmarshalText([]byte(n.Device.NGUID)); err != nil {
				im.note("subsystem %s: the NGUID of namespace %d is left out: %v", s.NQN, n.NSID, err)
				ns.NGUID = nil
			}
		}
		out.Namespaces = append(out.Namespaces, ns)
	}
	im.c.Subsystems = append(im.c.Subsystems, out)
}
