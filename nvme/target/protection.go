package target

import "github.com/nvme-anywhere/nvmeof/nvme"

// Write protection that a host set stays until a host lifts it, over a restart too (NVMe base,
// "Namespace Write Protection"), where there is a Store.

func (ns *Namespace) protectionName() string { return "protected-" + nvme.HostID(ns.uuid).String() }

// loadProtection brings back what a host set.
func (ns *Namespace) loadProtection() error {
	if ns.sub.t.store == nil {
		return nil
	}
	b, err := ns.loadState(ns.protectionName())
	if err == nil && b != nil {
		ns.protected.Store(true)
	}
	return err
}

// protect sets write protection, when that is saved, and says whether it was otherwise.
func (ns *Namespace) protect(on bool) (changed bool, err error) {
	ns.protecting.Lock()
	defer ns.protecting.Unlock()
	if ns.protected.Load() == on {
		return false, nil
	}
	if store := ns.sub.t.store; store != nil && on {
		err = ns.saveState(ns.protectionName(), true)
	} else if store != nil {
		err = store.Delete(ns.protectionName())
	}
	if err == nil {
		ns.protected.Store(on)
	}
	return err == nil, err
}
