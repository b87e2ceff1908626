const PAUSE_MS = 2000;
const live = (page) => page.querySelectorAll('.live');
async function update() {
  // A page that is not looked at asks for nothing, and a selection stays.
  if (!document.hidden && getSelection().isCollapsed) {
    const lost = document.getElementById('lost');
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.statusText);
      const fresh = live(new DOMParser().parseFromString(await answer.text(), 'text/html'));
      live(document).forEach((part, number) => part.replaceChildren(...fresh[number].childNodes));
      lost.textContent = '';
    } catch (error) {
      lost.textContent ||= `No answer since ${new Date().toLocaleTimeString()}.`;
    }
  }
  setTimeout(update, PAUSE_MS);
}
setTimeout(update, PAUSE_MS);
