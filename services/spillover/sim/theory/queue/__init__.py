"""The distributed queue solved exactly (Johnson)."""
