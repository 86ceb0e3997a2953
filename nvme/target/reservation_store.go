package target

import (
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// savedReservation is a reservation as it is stored, in human-readable JSON.
type savedReservation struct {
	Persist     bool              `json:"persist"` // PTPL
	Generation  uint32            `json:"generation"`
	Type        nvme.ResvType     `json:"type"`
	Holder      string            `json:"holder,omitempty"` // host identifier
	Registrants []savedRegistrant `json:"registrants"`
}

type savedRegistrant struct {
	Host string `json:"host"` // host identifier
	Key  uint64 `json:"key"`
}

// saveReservation saves what must outlive the target: the whole reservation, or an empty one if it doesn't persist.
func (ns *Namespace) saveReservation(v *reservation) error {
	s := savedReservation{Registrants: []savedRegistrant{}}
	if v.persist {
		s.Persist, s.Generation, s.Type = true, v.generation, v.kind
		if !v.holder.IsZero() {
			s.Holder = v.holder.String()
		}
		for _, r := range v.registrants {
			s.Registrants = append(s.Registrants, savedRegistrant{r.host.String(), r.key})
		}
	}
	return ns.saveState(stateReservation, s)
}

// loadReservation loads what was saved. A namespace whose reservation can't be read isn't served, because it isn't
// known which hosts may write to it.
func (ns *Namespace) loadReservation() error {
	ns.resv.now.Store(new(reservation))
	b, err := ns.loadState(stateReservation)
	if err != nil || b == nil {
		return err
	}
	v, err := parseReservation(b)
	if err != nil {
		return ns.stateError(stateReservation, err)
	}
	ns.useReservation(v)
	return nil
}

func parseReservation(b []byte) (*reservation, error) {
	var s savedReservation
	if err := parseState(b, &s); err != nil {
		return nil, err
	}
	v := &reservation{generation: s.Generation, kind: s.Type, persist: s.Persist}
	for _, r := range s.Registrants {
		id, err := nvme.ParseHostID(r.Host)
		if err != nil {
			return nil, err
		}
		if v.find(id) >= 0 {
			return nil, fmt.Errorf("host %s is there twice", id)
		}
		v.registrants = append(v.registrants, registrant{id, r.Key})
	}
	if s.Holder != "" {
		id, err := nvme.ParseHostID(s.Holder)
		if err != nil {
			return nil, err
		}
		v.holder = id
	}
	switch {
	case v.kind > nvme.ResvExclusiveAccessAllReg:
		return nil, fmt.Errorf("reservation of type %d", v.kind)
	case v.kind != nvme.ResvNone && !v.kind.AllRegistrants() && v.find(v.holder) < 0,
		v.kind.AllRegistrants() && len(v.registrants) == 0:
		return nil, errors.New("reservation without a holder")
	}
	return v, nil
}
