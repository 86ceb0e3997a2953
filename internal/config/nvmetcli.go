package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The JSON that nvmetcli saves: the directories of Linux nvmet's configfs.
type (
	nvmetcli struct {
		Ports      []nvmetPort      `json:"ports"`
		Subsystems []nvmetSubsystem `json:"subsystems"`
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

// FromNVMeTCLI reads what Linux's nvmetcli saved. What has no counterpart here is left out and
// told in notes, a line each. The Config is valid.
func FromNVMeTCLI(name string, b []byte) (c *Config, notes []string, err error) {
	var in nvmetcli
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, nil, jsonError(name, b, err)
	}
	if len(in.Subsystems) == 0 {
		return nil, nil, &FieldError{File: name, Field: "subsystems", Err: errors.New("there are none: is this a file that nvmetcli saved?")}
	}
	im := importer{c: &Config{}}
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
		return nil, nil, err
	}
	return im.c, im.notes, nil
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
	c     *Config
	notes []string
}

func (im *importer) note(format string, a ...any) {
	im.notes = append(im.notes, fmt.Sprintf(format, a...))
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
